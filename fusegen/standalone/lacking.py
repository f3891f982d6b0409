"""What a standalone file lacks of what packages have."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.errors import SpecError
from fusegen.plan.plan import Plan
from fusegen.plan.refusals import synchronised
from fusegen.spec.document import Document, DocumentPath

_PACKAGE = "`fusegen build` makes a package that has them"

Lacking = tuple[DocumentPath, str, str]
"""A place in the spec, a message, a hint."""


def refuse_lacking(plan: Plan, document: Document) -> None:
    """Raises SpecError with all that a chain, or a region of one, needs and a file lacks. document: of the chain."""
    found = [document.diagnostic("FG510", message, place, hint=hint) for place, message, hint in _lacking(plan)]
    if found:
        raise SpecError(found)


def _lacking(plan: Plan) -> Iterator[Lacking]:
    spec, chain = plan.spec, plan.chain
    if chain.convolution is not None:
        yield ("chain", 0), "an exported file has no convolutions", _PACKAGE
    if chain.batched is not None:
        yield ("chain", 0), "an exported file has no bmm", _PACKAGE
    if chain.targets:
        yield ("chain", len(spec.chain) - 1), "an exported file has no losses", _PACKAGE
    for name in chain.spread:
        message = f"in an exported file an input has all dimensions of rows or none: '{name}' has some"
        yield ("inputs", name), message, _PACKAGE
    for index in synchronised(spec):
        hint = "leave 'sync' out of its spec"
        yield ("chain", index, "sync"), "an exported file exchanges nothing between ranks", hint
    for index, step in enumerate(spec.chain):
        if getattr(step, "width", None) is not None:
            yield ("chain", index, "width"), "an exported file has no norms of blocks of channels", _PACKAGE
        if step.draws:
            yield ("chain", index), f"an exported file has no {step.op}", _PACKAGE
