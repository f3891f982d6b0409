"""The plan of a standalone file: a spec's, with fewer dtypes if so wished, and what such a file lacks left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.plan.epilogue import SPLIT, is_split
from fusegen.plan.load import plan_document
from fusegen.plan.plan import Plan, make_plan
from fusegen.plan.refusals import synchronised
from fusegen.plan.summary import is_built
from fusegen.plan.tuning_file import tuned
from fusegen.spec.yaml import read_yaml

IEEE = "ieee"


@dataclass(frozen=True)
class StandalonePlan(Plan):
    """A plan without precisions that a call may choose: float32 is multiplied as the spec says."""

    @property
    def has_precisions(self) -> bool:
        return is_split(self.spec)


def standalone_plan(
    path: Path | str, dtypes: Sequence[str] | None = None, precision: str | None = None
) -> StandalonePlan:
    """The plan of a spec file, with its tuning.

    dtypes: which of the spec's to compile; None: all. precision: `ieee` for PyTorch's own float32 product where the
    spec asks for another. Raises SpecError for what is wrong with the spec, dtypes that it lacks, and a precision that
    such a file cannot have.
    """
    document = read_yaml(path, lenient=True)
    whole = tuned(plan_document(document), path)
    spec, first = whole.spec, whole.spec.chain[0]
    changes: dict[str, object] = {}
    if whole.chain.spatial:
        hint = "`fusegen build` makes a package that has them"
        what = "convolutions" if whole.chain.convolution else "chains whose dimension 1 is the channels"
        raise SpecError([document.diagnostic("FG510", f"an exported file has no {what}", ("chain", 0), hint=hint)])
    blocks = next((i for i, step in enumerate(spec.chain) if getattr(step, "width", None) is not None), None)
    if blocks is not None:
        hint = "`fusegen build` makes a package that has them"
        message = "an exported file has no norms of blocks of channels"
        raise SpecError([document.diagnostic("FG510", message, ("chain", blocks, "width"), hint=hint)])
    if whole.chain.targets:
        place, hint = ("chain", len(spec.chain) - 1), "`fusegen build` makes a package that has them"
        raise SpecError([document.diagnostic("FG510", "an exported file has no losses", place, hint=hint)])
    if whole.chain.batched is not None:
        hint = "`fusegen build` makes a package that has it"
        raise SpecError([document.diagnostic("FG510", "an exported file has no bmm", ("chain", 0), hint=hint)])
    if spec.outputs is not None:
        raise SpecError([document.diagnostic("FG510", "an exported file returns one result", ("outputs",), key=True)])
    if whole.chain.leading:
        hint = "write [rows, channels]: a call may have more dimensions; or build a package"
        message = "an exported file has inputs of two dimensions in its spec"
        raise SpecError([document.diagnostic("FG510", message, ("inputs", whole.chain.inputs[0].name), hint=hint)])
    for index in synchronised(spec):
        message, hint = "an exported file exchanges nothing between ranks", "leave 'sync' out of its spec"
        raise SpecError([document.diagnostic("FG510", message, ("chain", index, "sync"), hint=hint)])
    for index, step in enumerate(spec.chain):
        if step.draws:
            message, hint = f"an exported file has no {step.op}", "`fusegen build` makes a package that has it"
            raise SpecError([document.diagnostic("FG510", message, ("chain", index), hint=hint)])
    if first.op in ("linear", "matmul") and "float32" in (dtypes or spec.dtypes):
        wanted = precision or first.precision
        if wanted not in (IEEE, SPLIT):
            message = f"an exported file has no float32 products by {quote(wanted)}"
            hint = "`--precision ieee` exports PyTorch's own; `fusegen build` makes a package that has them"
            raise SpecError([document.diagnostic("FG510", message, ("chain", 0, "precision"), hint=hint)])
        if first.precision != wanted:
            changes["chain"] = (first.model_copy(update={"precision": wanted}), *spec.chain[1:])
    elif first.op in ("linear", "matmul") and first.precision != IEEE:
        changes["chain"] = (first.model_copy(update={"precision": IEEE}), *spec.chain[1:])
    if dtypes is not None:
        lacking = [each for each in dtypes if each not in spec.dtypes]
        if lacking or not dtypes:
            message = f"the spec has no kernels for {', '.join(map(quote, lacking)) or 'no dtype at all'}"
            raise SpecError([Diagnostic("FG211", message, hint=f"it has {', '.join(spec.dtypes)}")])
        changes["dtypes"] = tuple(each for each in spec.dtypes if each in dtypes)
    if changes:
        whole = replace(make_plan(spec.model_copy(update=changes), document), tuning=whole.tuning)
    values = {field.name: getattr(whole, field.name) for field in fields(whole)}
    return StandalonePlan(**{**values, "modes": tuple(filter(is_built, whole.modes))})
