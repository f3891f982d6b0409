"""From spec files to their plans."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fusegen.chain.build import examine_chain
from fusegen.errors import Diagnostic, SpecError
from fusegen.ops.catalogue import PLUGINS, STEPS
from fusegen.ops.lacking import unknown_op
from fusegen.plan.plan import Plan, make_plan
from fusegen.plan.refusals import refusals
from fusegen.plan.tuning_file import tuned
from fusegen.spec.document import Document
from fusegen.spec.model import spec_model
from fusegen.spec.partial import read_partly
from fusegen.spec.validate import merge, validate
from fusegen.spec.yaml import read_yaml


def plan_file(path: Path | str) -> Plan:
    """The plan of a spec file, with the tuning beside it. Raises SpecError with the diagnostics of either."""
    return tuned(plan_document(read_yaml(path, lenient=True)), path)


def plan_document(document: Document) -> Plan:
    """As plan_file, of a file that has been read, without a tuning."""
    PLUGINS.check()
    try:
        spec = validate(spec_model(STEPS, unknown_op), document)
    except SpecError as error:
        if any(diagnostic.code == "FG213" for diagnostic in error.diagnostics):
            raise
        # Errors in one part must not hide those in another.
        partial = read_partly(STEPS, document)
        chain, diagnostics = examine_chain(partial, document, training=True)
        diagnostics = merge(diagnostics, refusals(partial, chain, document))
        raise SpecError(merge(error.diagnostics, diagnostics)) from None
    return make_plan(spec, document)


def plan_files(paths: Iterable[Path | str]) -> list[Plan]:
    """The plans of several spec files, for one output directory. Raises SpecError with all diagnostics of them."""
    plans: list[Plan] = []
    diagnostics: list[Diagnostic] = []
    taken: dict[str, str] = {}
    for path in dict.fromkeys(map(Path, paths)):
        try:
            document = read_yaml(path, lenient=True)
            plan = tuned(plan_document(document), path)
        except SpecError as error:
            diagnostics += error.diagnostics
            continue
        plans.append(plan)
        # Some file systems take names that differ only in case for one.
        names = {f"package {plan.spec.name.lower()}": "the package", **{f"op {name}": "ops" for name in plan.op_names}}
        for name, what in names.items():
            other = taken.setdefault(name, document.file)
            if other != document.file:
                message = f"'{plan.spec.name}' would give {what} a name that {other} gives already"
                diagnostics.append(document.diagnostic("FG208", message, ("name",), hint="rename one"))
                break
    if diagnostics:
        raise SpecError(diagnostics)
    return plans
