"""A number that a step may not have may be no default of an argument that the step names, and no typical value."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from fusegen.chain.diagnostics import StepError
from fusegen.errors import Diagnostic, SpecError
from fusegen.ops.catalogue import STEPS
from fusegen.ops.step import Step
from fusegen.plan import load
from fusegen.reference.ops import own_keys
from fusegen.spec.annotations import describe, field_type, fields
from fusegen.spec.names import Identifier
from fusegen.spec.numbers import takes_number
from fusegen.spec.yaml import parse_yaml

# These are sizes, which arguments of type dim are, or any number at all.
SIZES = {"out_features", "features", "out_channels", "num_parameters", "width", "shape", "normalized_shape"}
SIZES |= {"channels", "start", "length"}
OTHERS = SIZES | {"init", "bias_init"}
CALLED = {op for step in STEPS if not step.has_kernels for op in step.ops()}
KEYS = [
    (step, key)
    for step in STEPS
    for key, info in fields(step).items()
    if takes_number(field_type(info)) and "a name" in describe(field_type(info)) and key not in OTHERS
]
WHOLE = (-1, 0, 1, 4, 2**31)
BROKEN = (-1.0, 0.0, 0.5, 2.0, 1e300, 5e-324)


def refused(step: str, arguments: str, positions: int = 0) -> set[tuple[str, str, int]]:
    """What is said of a spec with this step: the code, the message and the line."""
    sizes = ["batch", "features", *("depth", "height", "width")[:positions]]
    text = f"""\
fusegen: 1
name: demo
dims: {{{", ".join(f"{name}: 32" for name in sizes)}}}
arguments: {{features: {{type: dim}}, {arguments}}}
inputs: {{x: [{", ".join(sizes)}]{", padding: [1]" if "mask" in step else ""}}}
chain:
  - {{{step}}}
"""
    text += "  - {op: tanh}\n" * (step.split(",")[0].removeprefix("op: ") in CALLED)  # which kernels do
    try:
        load.planned_document(parse_yaml(text, "demo.yaml"))
    except SpecError as error:
        return {(each.code, each.message, line(each)) for each in error.diagnostics}
    return set()


def line(diagnostic: Diagnostic) -> int:
    assert diagnostic.location is not None
    return diagnostic.location.line


@pytest.mark.parametrize(("step", "key"), KEYS, ids=[f"{step.__name__}-{key}" for step, key in KEYS])
def test_numbers_of_arguments_are_refused_as_those_of_steps(step: type[Step], key: str) -> None:
    op = step.ops()[0]
    given = {each.name: each.example for each in own_keys(step) if each.required}
    given |= {"parameter": "scale", "shape": "[features]", "init": "ones"} if key in ("times", "plus") else {}
    given |= {name: "8" for name in ("out_channels", "hidden") if name in given}
    given |= {"stride": "2"} if key == "output_padding" else {}
    positions = int(op[-2]) if op.startswith("conv") or "_pool" in op else 2 if op in CALLED else 0
    whole = "whole number" in describe(field_type(fields(step)[key])) or key == "scale_factor"  # as an argument
    seen = 0
    for number in WHOLE if whole else BROKEN:
        own, named = (
            ", ".join(f"{name}: {value}" for name, value in {"op": op, **given, key: value}.items())
            for value in (number, "k")
        )
        expected = {(code, message) for code, message, _ in refused(own, "", positions)}
        seen += bool(expected)
        kind = "int, typical: 1" if whole else "float"
        found = refused(named, f"k: {{type: {kind}, default: {number}}}", positions)
        assert found == {(*each, 4) for each in expected}, number
        if whole:
            found = refused(named, f"k: {{type: int, typical: {number}}}", positions)
            assert expected <= {each[:2] for each in found}, number  # and perhaps what follows from it
    assert seen or not whole


class Scaled(Step):
    """An op of a plugin. odd: what its field cannot say."""

    op: Literal["scaled"]
    scale: Annotated[float, Field(gt=0, lt=10)] | Identifier
    formula = "scale x"
    matrix_only = "never"

    def build(self, chain, x):
        if self.scale == 3:
            raise StepError("FG205", "3 is no scale", "scale")
        return chain.graph.add("mul", x, chain.scalar(self.scale, "scale"), name="scaled_value")

    def eager(self, x: str) -> str:
        return f"{x} * {self.scale}"


@pytest.mark.parametrize(
    ("number", "message"), [(10, "'scale' must be less than 10, found the number 10"), (3, "3 is no scale"), (4, None)]
)
def test_of_the_op_of_a_plugin(number: int, message: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "STEPS", (*STEPS, Scaled))
    expected = {("FG205", message, 4)} if message else set()
    assert refused("op: scaled, scale: k", f"k: {{type: float, default: {number}}}") == expected


def test_sizes_are_the_callers() -> None:
    """A default that does not fit the sizes that planning assumes may fit those of a call."""
    assert not refused("op: group_norm, name: n, num_groups: k", "k: {type: int, typical: 4, default: 5}")
    assert not refused(
        "op: conv2d, name: c, out_channels: 8, kernel_size: k", "k: {type: int, typical: 3, default: 50}", 2
    )


def test_a_number_of_another_type_is_told_once() -> None:
    found = refused("op: group_norm, name: n, num_groups: k", "k: {type: float, default: 0.5}")
    assert {code for code, *_ in found} == {"FG302"} and {line for *_, line in found} == {7}
