"""What a standalone file lacks of what packages have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusegen.errors import Diagnostic, SpecError
from fusegen.ops.step import Step
from fusegen.plan.composition import Composition, Planned
from fusegen.plan.plan import Plan
from fusegen.plan.refusals import synchronised
from fusegen.plan.region_specs import region_document
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.validate import merge

_PACKAGE = "`fusegen build` makes a package that has them"

Lacking = tuple[DocumentPath, str, str]
"""A place in the spec, a message, a hint."""


def refuse_lacking(planned: Planned, document: Document) -> None:
    """Raises SpecError with all that a chain, or a region of one, needs and a file lacks."""
    if not isinstance(planned, Composition):
        found = _diagnostics(_lacking(planned), document)
    else:
        found = []
        for part in planned.parts:
            lacking = _of_layer(part.region.steps[0]) if part.plan is None else _lacking(part.plan)
            found = merge(found, _diagnostics(lacking, region_document(document, part.region)))
    if found:
        raise SpecError(found)


def _diagnostics(lacking: Iterable[Lacking], document: Document) -> list[Diagnostic]:
    return [document.diagnostic("FG510", message, place, hint=hint) for place, message, hint in lacking]


def _of_layer(layer: Step) -> Iterator[Lacking]:
    """Of one that PyTorch calls."""
    if layer.op != "linear":
        yield ("chain", 0), f"an exported file has no {layer.op}", _PACKAGE


def _lacking(plan: Plan) -> Iterator[Lacking]:
    spec, chain = plan.spec, plan.chain
    if chain.spatial:
        what = "convolutions" if chain.convolution else "chains whose dimension 1 is the channels"
        yield ("chain", 0), f"an exported file has no {what}", _PACKAGE
    if chain.batched is not None:
        yield ("chain", 0), "an exported file has no bmm", _PACKAGE
    if chain.targets:
        yield ("chain", len(spec.chain) - 1), "an exported file has no losses", _PACKAGE
    elif chain.drops_channels and spec.outputs:
        message = "an exported file has no result for each row beside others: 'keepdim: true' keeps the dimension"
        yield ("chain", len(spec.chain) - 1), message, _PACKAGE
    for name in chain.spread:
        message = f"in an exported file an input has all dimensions of rows or none: '{name}' has some"
        yield ("inputs", name), message, _PACKAGE
    if chain.exchanged:
        message = "an exported file has no result whose rows come behind the channels"
        yield ("chain", len(spec.chain) - 1), message, _PACKAGE
    for index in synchronised(spec):
        hint = "leave 'sync' out of its spec"
        yield ("chain", index, "sync"), "an exported file exchanges nothing between ranks", hint
    for index, step in enumerate(spec.chain):
        if getattr(step, "width", None) is not None:
            yield ("chain", index, "width"), "an exported file has no norms of blocks of channels", _PACKAGE
        if chain.trailing and getattr(step, "normalized_shape", None) is not None:
            message = "an exported file has no norms over several dimensions"
            yield ("chain", index, "normalized_shape"), message, _PACKAGE
