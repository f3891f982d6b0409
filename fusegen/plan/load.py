"""From spec files to their plans."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fusegen.chain.build import examine_chain
from fusegen.chain.images import with_layers_over_channels, with_leading_dimensions
from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.ops.catalogue import PLUGINS, STEPS
from fusegen.ops.lacking import unknown_op
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.modules.plan_module import plan_module
from fusegen.plan.modules.refusals import refusals
from fusegen.plan.modules.wiring import prove_wiring
from fusegen.plan.regions.region import is_single
from fusegen.plan.tunings.tuning_file import tuned
from fusegen.progress import tell
from fusegen.spec.document import Document
from fusegen.spec.model import SpecModel, spec_model
from fusegen.spec.partial import read_partly
from fusegen.spec.validate import merge, validate
from fusegen.spec.yaml import read_yaml


def plan_file(path: Path | str) -> Plan:
    """The plan of the only region of a spec file, with the tuning beside it. Raises SpecError as planned_file, and for
    a chain of several regions."""
    return _single(planned_file(path))


def plan_document(document: Document) -> Plan:
    """As plan_file, of a file that has been read, without a tuning."""
    return _single(planned_document(document))


def _single(planned: ModulePlan) -> Plan:
    if planned.single is None:
        names = ", ".join(region.name for region in planned.regions)
        message = f"there is no single plan of {planned.spec.name}: it has several regions ({names})"
        raise SpecError([Diagnostic("FG401", message, hint="each region has a plan of its own, see planned_file")])
    return planned.single


def planned_file(path: Path | str) -> ModulePlan:
    """The plan of a spec file, with the tunings beside it. Raises SpecError with the diagnostics of all."""
    return tuned(planned_document(read_yaml(path, lenient=True)), path)


def planned_document(document: Document) -> ModulePlan:
    """As planned_file, of a file that has been read, without a tuning."""
    PLUGINS.check()
    try:
        spec = validate(spec_model(STEPS, unknown_op), document)
    except SpecError as error:
        if any(diagnostic.code == "FG213" for diagnostic in error.diagnostics):
            raise
        # Errors in one part must not hide those in another.
        partial = with_leading_dimensions(read_partly(STEPS, document))
        if not is_single(partial, cut=False):
            raise
        chain, diagnostics = examine_chain(partial, document, training=True)
        diagnostics = merge(diagnostics, refusals(partial, chain, document))
        if not is_single(partial):
            diagnostics = [each for each in diagnostics if each.code != "FG309"]  # regions of their own have no such
        raise SpecError(merge(error.diagnostics, diagnostics)) from None
    return planned_spec(spec, document)


def planned_spec(spec: SpecModel, document: Document) -> ModulePlan:
    """As planned_document, of a validated spec."""
    spec = with_layers_over_channels(with_leading_dimensions(spec))
    if spec.modes is not None and not is_single(spec):
        message, hint = "a chain of several regions has kernels for all modes of its dtypes", "leave 'modes' out"
        raise SpecError([document.diagnostic("FG401", message, ("modes",), key=True, hint=hint)])
    return prove_wiring(plan_module(spec, document))


def planned_files(paths: Iterable[Path | str]) -> list[ModulePlan]:
    """The plans of several spec files, for one output directory. Each is in a file of its own name: generated text says
    `specs/<name>.yaml`. Raises SpecError with all diagnostics of them."""
    plans: list[ModulePlan] = []
    diagnostics: list[Diagnostic] = []
    taken: dict[str, str] = {}
    files = list(dict.fromkeys(map(Path, paths)))
    for index, path in enumerate(files):
        tell(f"planning {path.stem}", index, len(files))
        try:
            document = read_yaml(path, lenient=True)
        except SpecError as error:
            diagnostics += error.diagnostics
            continue
        diagnostics += misnamed(document, path)
        try:
            plan = tuned(planned_document(document), path)
        except SpecError as error:
            diagnostics += error.diagnostics
            continue
        plans.append(plan)
        # Some file systems take names that differ only in case for one.
        names = {f"package {name.lower()}": "the package" for name in plan.package_names}
        names |= {f"op {name}": "ops" for name in plan.op_names}
        for name, what in names.items():
            other = taken.setdefault(name, document.file)
            if other != document.file:
                message = f"'{plan.spec.name}' would give {what} a name that {other} gives already"
                diagnostics.append(document.diagnostic("FG208", message, ("name",), hint="rename one"))
                break
    if diagnostics:
        raise SpecError(diagnostics)
    return plans


def misnamed(document: Document, path: Path) -> list[Diagnostic]:
    """What is wrong where a spec has another name than its file."""
    name = document.data.get("name")
    if not isinstance(name, str) or name == path.stem:
        return []
    message = f"the spec {quote(name)} is in the file {quote(path.name)}"
    return [document.diagnostic("FG504", message, ("name",), hint="the two names have to be the same, but for .yaml")]
