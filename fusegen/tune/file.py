"""The tuning file as it is written: one measurement a line, in the order of the plan."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fusegen.files import write, writing
from fusegen.plan.launches.shapes import DEFAULT
from fusegen.plan.launches.tuning import Architecture, Measurement, Tuning
from fusegen.plan.modules.plan import Plan
from fusegen.plan.tunings.tuning_file import FORMAT_VERSION


def merged(plan: Plan, new: Architecture) -> Tuning:
    """The plan's tuning with one architecture measured again.

    Sizes that were not measured this time stay where GPU and versions are the same. Of a program and dtype for which
    the default is fastest at every size, nothing is kept; else all sizes are, as each says where the next range begins.
    """
    old = next((a for a in plan.tuning if a.target == new.target), None)
    known: list[Measurement] = list(new.measurements)
    if old is not None and (old.gpu, old.torch, old.cuda) == (new.gpu, new.torch, new.cuda):
        measured = {(m.program, m.dtype, m.rows) for m in new.measurements}
        known += [m for m in old.measurements if (m.program, m.dtype, m.rows) not in measured]
    telling = {(m.program, m.dtype) for m in known if m.shapes != DEFAULT}
    kept = [m for m in known if (m.program, m.dtype) in telling]
    others = [a for a in plan.tuning if a.target != new.target]
    mine = [Architecture(new.target, new.gpu, new.torch, new.cuda, in_order(plan, kept))] if kept else []
    return tuple(sorted([*others, *mine], key=lambda a: int(a.target.removeprefix("sm_"))))


def write_tuning(path: Path, tuning: Tuning) -> None:
    """Writes the file, or removes it where there is nothing to say. Raises SpecError."""
    with writing(path):
        if tuning:
            write(path, tuning_text(tuning))
        else:
            path.unlink(missing_ok=True)


def tuning_text(tuning: Tuning) -> str:
    """What write_tuning writes."""
    architectures = ",\n".join(_architecture(each) for each in tuning)
    return f'{{\n  "fusegen_tuning": {FORMAT_VERSION},\n  "architectures": {{\n{architectures}\n  }}\n}}\n'


def _architecture(architecture: Architecture) -> str:
    programs = dict.fromkeys(m.program for m in architecture.measurements)
    blocks = ",\n".join(
        f"        {json.dumps(name)}: [\n{_lines(m for m in architecture.measurements if m.program == name)}\n        ]"
        for name in programs
    )
    machine = "".join(
        f"      {json.dumps(name)}: {json.dumps(getattr(architecture, name))},\n" for name in ("gpu", "torch", "cuda")
    )
    return f'    {json.dumps(architecture.target)}: {{\n{machine}      "programs": {{\n{blocks}\n      }}\n    }}'


def _lines(measurements: Iterable[Measurement]) -> str:
    return ",\n".join(f"          {json.dumps(_entry(each))}" for each in measurements)


def _entry(measurement: Measurement) -> dict[str, Any]:
    m = measurement
    return {
        **{"dtype": m.dtype, "rows": m.rows, "channels": m.channels},
        **({} if m.groups is None else {"groups": m.groups}),
        **m.shapes.changes,
        **{"microseconds": m.microseconds, "default_microseconds": m.default_microseconds},
        **{name: told for name in ("ran", "launches", "default_ran") if (told := getattr(m, name)) is not None},
    }


def in_order(plan: Plan, measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """By program and dtype as the plan and the spec have them, then by rows."""
    programs = [program.name for program in plan.programs]
    dtypes = list(plan.spec.dtypes)
    return tuple(sorted(measurements, key=lambda m: (programs.index(m.program), dtypes.index(m.dtype), m.rows)))
