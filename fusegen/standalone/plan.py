"""The plan of a standalone file: a spec's, with fewer dtypes if so wished, and what such a file lacks left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.plan.load import planned_files, planned_spec
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.modules.refusals import synchronised
from fusegen.plan.programs.epilogue import SPLIT, is_split
from fusegen.plan.summary import is_built
from fusegen.spec.document import Document
from fusegen.spec.model import SpecModel
from fusegen.spec.yaml import read_yaml

IEEE = "ieee"


@dataclass(frozen=True)
class StandalonePlan(Plan):
    """A plan without precisions that a call may choose: float32 is multiplied as the spec says."""

    @property
    def has_precisions(self) -> bool:
        return is_split(self.spec)


def standalone_plan(path: Path | str, dtypes: Sequence[str] | None = None, precision: str | None = None) -> ModulePlan:
    """The plan of a spec file, with its tuning; those of its regions are StandalonePlans.

    dtypes: which of the spec's to compile; None: all. precision: `ieee` for PyTorch's own float32 product where the
    spec asks for another. Raises SpecError for what is wrong with the spec, dtypes that it lacks, and a precision that
    such a file cannot have.
    """
    (whole,) = planned_files([path])
    document = read_yaml(path, lenient=True)
    spec = _changed(whole.spec, document, dtypes, precision)
    if spec is not whole.spec:
        whole = _tuned_as(whole, planned_spec(spec, document))
    _refuse(spec, document)
    return whole.with_plans(map(_standalone, whole.plans))


def _refuse(spec: SpecModel, document: Document) -> None:
    """What packages have, and files have not."""
    message, hint = "an exported file exchanges nothing between ranks", "leave 'sync' out of its spec"
    found = [document.diagnostic("FG510", message, ("chain", i, "sync"), hint=hint) for i in synchronised(spec)]
    message, hint = "an exported file makes a loss of all rows at once", "leave 'chunk' out of its spec"
    chunked = [index for index, step in enumerate(spec.chain) if getattr(step, "chunk", None) is not None]
    found += [document.diagnostic("FG510", message, ("chain", i, "chunk"), hint=hint) for i in chunked]
    if spec.invariant:
        message, hint = "an exported file promises no bits", "leave 'invariant' out of its spec"
        found.append(document.diagnostic("FG510", message, ("invariant",), key=True, hint=hint))
    if found:
        raise SpecError(found)


def _tuned_as(whole: ModulePlan, other: ModulePlan) -> ModulePlan:
    """The other with the tunings of the first: another precision may leave a region to PyTorch, or take it from it."""
    tunings = {plan.spec.name: plan.tuning for plan in whole.plans}
    plans = [replace(plan, tuning=tunings.get(plan.spec.name, ())) for plan in other.plans]
    return other.with_plans(plans)


def _standalone(plan: Plan) -> StandalonePlan:
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return StandalonePlan(**{**values, "modes": tuple(filter(is_built, plan.modes))})


def _changed(spec: SpecModel, document: Document, dtypes: Sequence[str] | None, precision: str | None) -> SpecModel:
    """The spec with fewer dtypes and another precision, where these are others."""
    changes: dict[str, object] = {}
    if dtypes is not None:
        lacking = [each for each in dtypes if each not in spec.dtypes]
        if lacking or not dtypes:
            message = f"the spec has no kernels for {', '.join(map(quote, lacking)) or 'no dtype at all'}"
            raise SpecError([Diagnostic("FG211", message, hint=f"it has {', '.join(spec.dtypes)}")])
        changes["dtypes"] = tuple(each for each in spec.dtypes if each in dtypes)
    chain = []
    for index, step in enumerate(spec.chain):
        own: str = getattr(step, "precision", "")
        wanted = (precision or own) if "float32" in (dtypes or spec.dtypes) else IEEE
        if own and wanted not in (IEEE, SPLIT):
            message = f"an exported file has no float32 products by {quote(wanted)}"
            hint = "`--precision ieee` exports PyTorch's own; `fusegen build` makes a package that has them"
            raise SpecError([document.diagnostic("FG510", message, ("chain", index, "precision"), hint=hint)])
        chain.append(step if own in ("", wanted) else step.model_copy(update={"precision": wanted}))
    if any(new is not old for new, old in zip(chain, spec.chain, strict=True)):
        changes["chain"] = tuple(chain)
    return spec.model_copy(update=changes) if changes else spec
