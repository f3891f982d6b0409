"""Specs as a stranger may send them: a good one with a few things changed, in its data or in its text."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

from hypothesis import strategies as st

from fusegen.ops.catalogue import STEPS
from fusegen.ops.lacking import LACKING, OTHER_NAMES
from fusegen.spec.annotations import fields
from fusegen.spec.arguments import ARGUMENTS
from fusegen.spec.model import SpecModel

Path = tuple[str | int, ...]

WORDS = (
    "x", "batch", "hidden", "relu", "add", "linear", "op", "name", "scale", "randn", "ones", "groups", "y", "F", "_a",
    "a__b", "lambda", "template", "threadIdx", "forward", "self", "none", "true_", "con", "class", "NULL", "x_ptr",
    "grad_x", "bn_weight", "row", "kVec", "sm_90", "float32", "tanh", "", " ", "a b", "-", "*", "&a", "{{ 7*7 }}",
    "*/", "\\", '"', "'''", "\n", "\0", "\u2028", "\u202e", "\ufeff", "\U0001f600", "??/", "a" * 65, "1_000", "0x1F",
    "1e5", "yes", "1:30", "2020-01-01", "é", "None", "null",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 7, 16, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63, 10**30, -(10**30), 0.0, -0.0, 0.5, -1.5, 1e-5,
    1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan,
)  # fmt: skip
STEP_KEYS = tuple(dict.fromkeys(key for step in STEPS for key in fields(step)))
KEYS = tuple(dict.fromkeys([*STEP_KEYS, *(key for each in ARGUMENTS for key in fields(each)), *fields(SpecModel)]))
OPS = (*(op for step in STEPS for op in step.ops()), *LACKING, *OTHER_NAMES)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.sampled_from(WORDS),
    st.sampled_from(OPS),
    st.integers(-10, 100),
    st.floats(width=64),
    st.text(max_size=6),
)
values = st.recursive(
    scalars,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), below, max_size=3)
    ),
    max_leaves=6,
)
steps = st.builds(
    lambda op, rest: {"op": op, **rest},
    st.sampled_from(OPS),
    st.dictionaries(st.sampled_from(STEP_KEYS), values, max_size=4),
)


def as_text(data: Any) -> str:
    """The data as YAML, in flow style: each value of the top level on lines of its own."""
    lines = []
    for key, value in data.items():
        if isinstance(value, list) and value:
            lines += [f"{_flow(key)}:", *(f"  - {_flow(each)}" for each in value)]
        elif isinstance(value, dict) and value:
            lines += [f"{_flow(key)}:", *(f"  {_flow(name)}: {_flow(each)}" for name, each in value.items())]
        else:
            lines.append(f"{_flow(key)}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if (
        isinstance(value, str)
        and value.isidentifier()
        and value.isascii()
        and value.lower() not in ("true", "false", "null")
    ):
        return value
    return json.dumps(value)


def paths(value: Any, above: Path = ()) -> list[Path]:
    """Every place in some data below its top."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, below in children for path in ((*above, key), *paths(below, (*above, key)))]


def at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


@st.composite
def mutated_data(draw: st.DrawFn, seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """One of the seeds with 1 to 4 places changed."""
    data = copy.deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        places = paths(data)
        if places:
            _change(draw, data, draw(st.sampled_from(places)))
    return data


def _change(draw: st.DrawFn, data: dict[str, Any], path: Path) -> None:
    inside, key = at(data, path[:-1]), path[-1]
    others = [other for other in paths(data) if other[: len(path)] != path and path[: len(other)] != other]
    kind = draw(st.sampled_from(("replace", "delete", "copy", "swap", "rename", "insert", "step", "wrap")))
    if kind == "delete":
        del inside[key]
    elif kind == "replace":
        inside[key] = draw(values)
    elif kind == "copy" and others:
        inside[key] = copy.deepcopy(at(data, draw(st.sampled_from(others))))
    elif kind == "swap" and others:
        other = draw(st.sampled_from(others))
        there = at(data, other[:-1])
        inside[key], there[other[-1]] = there[other[-1]], inside[key]
    elif kind == "rename" and isinstance(inside, dict):
        new = draw(st.sampled_from(KEYS) | st.sampled_from(WORDS) | st.sampled_from([str(k)[1:] for k in inside]))
        items = [(new if name == key else name, value) for name, value in inside.items()]
        inside.clear()
        inside.update(items)
    elif kind == "insert":
        if isinstance(inside, list):
            inside.insert(key, draw(st.sampled_from(inside) | values) if inside else draw(values))
        else:
            inside[draw(st.sampled_from(KEYS))] = draw(values)
    elif kind == "step" and isinstance(data.get("chain"), list):
        data["chain"].insert(draw(st.integers(0, len(data["chain"]))), draw(steps))
    elif kind == "wrap":
        inside[key] = draw(st.sampled_from([[inside[key]], {"op": inside[key]}, str(inside[key])]))


@st.composite
def mutated_text(draw: st.DrawFn, seeds: list[str]) -> str:
    """One of the seeds with 1 to 4 places of its text changed."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from((0, 1, 1, 1, 2, 5, 40))))
        lines = text.splitlines(keepends=True) or [""]
        line = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(("cut", "insert", "flip", "end", "indent", "double", "drop", "move")))
        if kind == "cut":
            text = text[:start] + text[end:]
        elif kind == "insert":
            text = text[:start] + draw(st.sampled_from(WORDS) | st.text(max_size=3)) + text[start:]
        elif kind == "flip":
            text = text[:start] + draw(st.sampled_from("{}[],:#&*!|>'\"%@`- \t\n0a~<?.")) + text[end:]
        elif kind == "end":
            text = text[:start]
        elif kind == "indent":
            lines[line] = draw(st.sampled_from((" ", "  ", "\t", "- "))) + lines[line]
            text = "".join(lines)
        elif kind == "double":
            text = "".join([*lines[: line + 1], *lines[line:]])
        elif kind == "drop":
            text = "".join(lines[:line] + lines[line + 1 :])
        else:
            moved = lines.pop(line)
            lines.insert(draw(st.integers(0, len(lines))), moved)
            text = "".join(lines)
    return text
