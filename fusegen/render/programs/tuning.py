"""A program's tuning as the table in kernels.cu from which its launcher picks."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from fusegen.plan.launches.kinds import AUTOMATIC, TWO_PASS
from fusegen.plan.launches.shapes import L2_IF_IT_FITS, PERSISTENT_IF_IT_FITS, Shapes
from fusegen.plan.launches.tuning import ranges
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program
from fusegen.plan.tunings.tuning_file import SUFFIX
from fusegen.render.text.identifiers import type_name
from fusegen.render.text.layout import WIDTH

_SCHEDULE: dict[str | int, str] = {
    AUTOMATIC: "kAutomatic",
    TWO_PASS: "kTwoPass",
    PERSISTENT_IF_IT_FITS: "kPersistentIfItFits",
    L2_IF_IT_FITS: "kL2IfItFits",
}


@dataclass(frozen=True)
class Line:
    """A line of the table, in C++. dtype: of the activations, for the comment."""

    capability: int
    modes: str
    most_rows: str
    channels: int
    length: int
    shapes: str
    dtype: str


@dataclass(frozen=True)
class Table:
    """name: of the array. file: what it comes from. columns: what the figures of a line are, in lines of text."""

    name: str
    file: str
    columns: list[str]
    lines: list[Line]


def table(plan: Plan, program: Program) -> Table | None:
    """The table of a program; None where the default is all that its launcher needs.

    A mode takes what was measured in the plain mode of its activations' dtype.
    """
    lines = []
    for architecture in plan.tuning:
        for dtype in plan.spec.dtypes:
            indices = [str(mode.index) for mode in plan.modes if mode.roles["activation"] == dtype]
            if not indices:
                continue
            modes = f"modes({', '.join(indices)})"
            for each in ranges(architecture.of(program.name, dtype)):
                most = "kAnyRows" if each.most_rows is None else str(each.most_rows)
                capability = int(architecture.target.removeprefix("sm_"))
                shapes = _shapes(each.shapes)
                lines.append(Line(capability, modes, most, each.channels, each.length, shapes, dtype))
    if not lines:
        return None
    name = f"k{type_name(program.name)}Shapes"
    columns = "compute capability, modes, most rows, channels, channels of a group, launch shapes."
    return Table(name, f"{plan.spec.name}{SUFFIX}", textwrap.wrap(columns, WIDTH - 3), lines)


def _shapes(shapes: Shapes) -> str:
    """C++: what differs from the default, by name."""
    changes = {name: _SCHEDULE.get(value, value) for name, value in shapes.changes.items()}
    return "Shapes{}" + "".join(f".with(&Shapes::{name}, {value})" for name, value in changes.items())
