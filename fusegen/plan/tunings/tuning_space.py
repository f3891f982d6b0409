"""The launch shapes that a program can be given: what is measured, and all that a tuning may choose."""

from __future__ import annotations

from itertools import product

from fusegen.plan.launches.kinds import AUTOMATIC, KERNELS, TUNABLES
from fusegen.plan.launches.shapes import DEFAULT, Shapes
from fusegen.plan.programs.model import Program
from fusegen.plan.programs.model import Schedule as PlanSchedule
from fusegen.plan.schedules.schedule_kinds import SCHEDULE_KINDS


def forced_name(schedule: str) -> str:
    """What `Shapes.schedule` calls a schedule; one that cannot be forced keeps its name."""
    kind = SCHEDULE_KINDS.get(schedule)
    return (kind and kind.forced) or schedule


def schedule_names(program: Program) -> tuple[str, ...]:
    """The schedules that a program's launcher can be forced to take."""
    return tuple(forced_name(each.kind) for each in program.schedules) if len(program.schedules) > 1 else ()


def tunable_names(program: Program, schedule: str | None) -> tuple[str, ...]:
    """The tunables that a program's kernels read in one of its schedules. None: no schedule is forced, and where there
    is a choice nobody can tell which kernels run."""
    names = schedule_names(program) or (None,)
    return next((_tunables(s) for name, s in zip(names, program.schedules, strict=True) if name == schedule), ())


def tuning_space(program: Program) -> tuple[Shapes, ...]:
    """The default, then each schedule with each setting of the tunables that its kernels read.

    The default may repeat one of them: which one depends on the size.
    """
    found = {DEFAULT: None}
    for schedule in schedule_names(program) or (None,):
        tunables = tunable_names(program, schedule)
        for values in product(*(TUNABLES[tunable].values for tunable in tunables)):
            shapes = Shapes(schedule or AUTOMATIC, **dict(zip(tunables, values, strict=True)))
            found[shapes] = None
    return tuple(found)


def _tunables(schedule: PlanSchedule) -> tuple[str, ...]:
    found = {
        name
        for kernel in schedule.kernels
        for name, tunable in KERNELS[kernel.kind].tunables.items()
        if kernel.partial_sums or not tunable.sums
    }
    return tuple(name for name in TUNABLES if name in found)
