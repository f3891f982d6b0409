"""The tuning beside a spec, `<name>.tuning.json`: read, and checked against the plan that it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model

from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.plan.launches.devices import DEVICES
from fusegen.plan.launches.kinds import L2, PERSISTENT, TUNABLES, TWO_PASS
from fusegen.plan.launches.shapes import Shapes
from fusegen.plan.launches.tuning import Architecture, Measurement, Tuning
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program
from fusegen.plan.tunings.tuning_space import schedule_names, tunable_names
from fusegen.spec.base import Given, Listing, Plain, PositiveInt, SpecPart, problem
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.validate import validate
from fusegen.spec.wording import suggest
from fusegen.spec.yaml import read_yaml

SUFFIX = ".tuning.json"
FORMAT_VERSION = 1


def _version(value: int) -> int:
    if value != FORMAT_VERSION:
        raise problem("FG213", f"format version {value} is not known; this fusegen reads {FORMAT_VERSION}")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise problem("FG205", "it must be one line of printable text")
    return value


_Name = Annotated[str, Field(max_length=100), AfterValidator(_printable)]
_Told = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_printable)]
_Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Measured(SpecPart):
    """A measurement without the fields of Shapes."""

    dtype: str
    rows: PositiveInt
    channels: PositiveInt
    groups: Given[PositiveInt] = None
    microseconds: _Microseconds
    default_microseconds: _Microseconds
    ran: Given[_Told] = None
    launches: Given[_Told] = None
    default_ran: Given[_Told] = None


_CHOICES = {"schedule": (PERSISTENT, L2, TWO_PASS), **{name: tunable.values for name, tunable in TUNABLES.items()}}
if TYPE_CHECKING:
    _Entry = _Measured
else:
    _FIELDS = {name: (Given[Literal[values]], None) for name, values in _CHOICES.items()}
    _Entry = create_model("_Entry", __base__=_Measured, **_FIELDS)


class _Machine(SpecPart):
    """What was measured on, and the programs that were."""

    gpu: _Name
    torch: _Name
    cuda: _Name
    programs: dict[str, Listing[_Entry]]


class _File(SpecPart):
    """All of the file."""

    fusegen_tuning: Annotated[int, AfterValidator(_version), Plain("the number of the format version")]
    architectures: dict[str, _Machine]


def tuning_path(spec: Path | str, plan: Plan | None = None) -> Path:
    """Where the tuning of a spec file lies. plan: of a region of it, whose tuning has the name of its package."""
    whole = Path(spec).with_suffix(SUFFIX)
    if plan is None or plan.spec.file_stem == plan.spec.name:
        return whole
    return whole.with_name(plan.spec.name + SUFFIX)


def tuned(planned: ModulePlan, spec: Path | str) -> ModulePlan:
    """The plan with the tuning that lies beside its spec, if one does, or each of its regions with its own. Raises
    SpecError with the diagnostics of all."""
    plans, diagnostics = [], list[Diagnostic]()
    for plan in planned.plans:
        path = tuning_path(spec, plan)
        try:
            plans.append(replace(plan, tuning=read_tuning(plan, path)) if path.exists() else plan)
        except SpecError as error:
            diagnostics += error.diagnostics
    if diagnostics:
        raise SpecError(diagnostics)
    return planned.with_plans(plans)


def read_tuning(plan: Plan, path: Path) -> Tuning:
    """A tuning file that is there. Raises SpecError, also where it speaks of what the plan has not."""
    document = read_yaml(path, lenient=True)
    file = validate(_File, document)
    diagnostics = list(_refusals(plan, file, document))
    if diagnostics:
        raise SpecError(diagnostics)
    return tuple(_architecture(target, machine) for target, machine in file.architectures.items())


def _architecture(target: str, machine: _Machine) -> Architecture:
    found = []
    for program, entries in machine.programs.items():
        for entry in entries:
            chosen = {name: getattr(entry, name) for name in _CHOICES}
            given = {name: getattr(entry, name) for name in _Measured.model_fields}
            shapes = Shapes(**{name: value for name, value in chosen.items() if value is not None})
            found.append(Measurement(program, shapes=shapes, **given))
    return Architecture(target, machine.gpu, machine.torch, machine.cuda, tuple(found))


def _refusals(plan: Plan, file: _File, document: Document) -> Iterator[Diagnostic]:
    """What is well-formed and speaks of something that the plan lacks."""
    targets = [target.rstrip("a") for target in plan.spec.targets]
    programs = {program.name: program for program in plan.programs}
    for target, machine in file.architectures.items():
        here: DocumentPath = ("architectures", target)
        if target not in targets:
            message = f"the spec has no target {quote(target)}"
            yield document.diagnostic("FG601", message, here, key=True, hint=suggest(target, targets, among="it has"))
        for name, entries in machine.programs.items():
            path = (*here, "programs", name)
            if name not in programs:
                message, hint = f"the plan has no program {quote(name)}", suggest(name, list(programs), among="it has")
                yield document.diagnostic("FG601", message, path, key=True, hint=hint)
                continue
            seen: dict[tuple[str, int], int] = {}
            for index, entry in enumerate(entries):
                first = seen.setdefault((entry.dtype, entry.rows), index)
                if first != index:
                    message = f"{entry.dtype} with {entry.rows} rows is there already, as element {first + 1}"
                    yield document.diagnostic("FG602", message, (*path, index))
                yield from _unfit(plan, programs[name], entry, document, (*path, index))
                yield from _too_large_clusters(target, entry, document, (*path, index))


def _unfit(plan: Plan, program: Program, entry: Any, document: Document, path: DocumentPath) -> Iterator[Diagnostic]:
    """What the program of an entry lacks."""
    if entry.dtype not in plan.spec.dtypes:
        message, hint = f"the spec has no dtype {quote(entry.dtype)}", f"it has: {', '.join(plan.spec.dtypes)}"
        yield document.diagnostic("FG601", message, (*path, "dtype"), hint=hint)
    if (entry.groups is None) != (program.groups is None):
        message = f"{program.name} has {'no groups' if program.groups is None else 'groups: their number is missing'}"
        yield document.diagnostic("FG601", message, (*path, "groups"))
    names = schedule_names(program)
    if entry.schedule is not None and entry.schedule not in names:
        message = f"{program.name} has one schedule only: there is nothing to choose"
        if names:
            message = f"{program.name} has no schedule {quote(entry.schedule)}"
        others = f"it has: {', '.join(names)}" if names else None
        yield document.diagnostic("FG601", message, (*path, "schedule"), key=True, hint=others)
        return
    known = tunable_names(program, entry.schedule)
    for name in TUNABLES:
        if getattr(entry, name) is not None and name not in known:
            how = f"the schedule {entry.schedule}" if entry.schedule else "the automatic schedule"
            message = f"no kernel of {program.name} reads {quote(name)} in {how}"
            hint = f"there it has: {', '.join(known) or 'none'}"
            if not entry.schedule and schedule_names(program):
                hint = "name the schedule that was measured"
            yield document.diagnostic("FG601", message, (*path, name), key=True, hint=hint)


def _too_large_clusters(target: str, entry: Any, document: Document, path: DocumentPath) -> Iterator[Diagnostic]:
    """What no GPU of the target launches."""
    for name, tunable in TUNABLES.items():
        blocks = getattr(entry, name) or 1
        if tunable.cluster and blocks > DEVICES[target].most_cluster:
            message = f"{target} has no clusters of {blocks} blocks"
            yield document.diagnostic("FG601", message, (*path, name), hint="measure again")
