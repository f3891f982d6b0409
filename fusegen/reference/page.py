"""The tables of docs/spec.md, which are derived from the models and the catalogue."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from pydantic import BaseModel

from fusegen.ops.catalogue import STEPS
from fusegen.ops.lacking import LACKING
from fusegen.ops.step import Step
from fusegen.plan.launches.devices import DEVICES
from fusegen.reference.keys import Key, keys_of
from fusegen.reference.ops import example, own_keys, remarks
from fusegen.spec.arguments import ARGUMENTS
from fusegen.spec.model import Rewrites, SpecModel

_SECTION = re.compile(r"(?s)(<!-- derived: ([\w ]+) -->\n).*?(<!-- end -->)")


def filled(page: str) -> str:
    """The page with each derived section as the models have it now."""
    return _SECTION.sub(lambda found: f"{found[1]}{_SECTIONS[found[2]]()}{found[3]}", page)


def _top_level() -> str:
    return _table(keys_of(SpecModel))


def _rewrites() -> str:
    return _table(keys_of(Rewrites))


def _arguments() -> str:
    return "\n".join(_argument(model) for model in ARGUMENTS)


def _argument(model: type[BaseModel]) -> str:
    kind = keys_of(model)[0].value.strip("'")
    keys = keys_of(model, ("type",))
    return f"`type: {kind}`: {inspect.getdoc(model)}\n\n" + (_table(keys) if keys else "")


def _every_step() -> str:
    return _table(keys_of(Step))


def _ops() -> str:
    return "\n".join(_op(step) for step in STEPS)


def _op(step: type[Step]) -> str:
    ops = step.ops()
    formulas = dict.fromkeys(map(step.formula_of, ops))
    shown = "; ".join(f"`{each}`" for each in formulas)
    lines = [f"### {', '.join(ops)}", "", f"{shown}. {' '.join(remarks(step))}".rstrip(), ""]
    keys = own_keys(step)
    return "\n".join([*lines, f"Example: `{example(ops[0])}`", "", _table(keys) if keys else ""])


def _lacking() -> str:
    """A line for each reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason, advice in LACKING.values():
        reasons.setdefault(f"{reason}: {advice}", []).append(name)
    return "".join(f"- {', '.join(names)}: {reason}.\n" for reason, names in reasons.items())


def _targets() -> str:
    rows = [
        f"| {each.target} | {each.name} | {'yes' if each.most_cluster > 1 else 'no'} |" for each in DEVICES.values()
    ]
    return "\n".join(["| target | GPU that its launch shapes are made for | clusters |", "|---|---|---|", *rows, ""])


_SECTIONS = {
    "top level": _top_level,
    "arguments": _arguments,
    "rewrites": _rewrites,
    "every step": _every_step,
    "ops": _ops,
    "lacking": _lacking,
    "targets": _targets,
}


def _table(keys: list[Key]) -> str:
    rows = (
        [
            f"`{key.name}`",
            key.presence,
            key.about,
            key.value,
            f"`{key.example}`" * bool(key.example),
        ]
        for key in keys
    )
    lines = ["| key | presence | meaning | value | example |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *_lines(rows), ""])


def _lines(rows: Iterator[list[str]]) -> list[str]:
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
