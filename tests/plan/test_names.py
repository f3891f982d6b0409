"""Names that would mean two things in the generated code: refused, or kept apart, before any is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.render.ops.operators import ops
from fusegen.render.package import render_package
from fusegen.render.python.broadcast_lines import eager_lines
from tests.plan.planning import LINEAR, planned

_HIDDEN = ", {}: [batch, hidden]"
_TEXT = """\
fusegen: 1
name: demo
about: A demo
dims: {batch: 16, hidden: 32}
dtypes: [float32]
"""


def plan_of(directory: Path, *lines: str) -> Plan:
    """The plan of a chain over [16, 32]: first lines of the top level, then the insides of the steps' braces."""
    top = [line for line in lines if not line.startswith("op: ")]
    steps = [f"  - {{{line}}}" for line in lines if line.startswith("op: ")]
    if not any(line.startswith("arguments") for line in top):
        top.append("arguments: {hidden: {type: dim}}")
    path = directory / "demo.yaml"
    path.write_text(_TEXT + "\n".join([*top, "chain:", *steps]) + "\n", encoding="utf-8")
    return plan_file(path)


def reference(plan) -> list[str]:
    """The body of the module's eager chain."""
    return eager_lines(module_of(plan))


# What the generated code calls something of its own, keywords and macros of C++, and what CUDA has.
ELSEWHERE = "a v y row sigmoid groups dtype_mode grad_y_in Stores T template NAN".split()


@pytest.mark.parametrize("name", ["self", "torch", "F"])
def test_names_that_python_reads_beside_those_of_the_spec(tmp_path, name: str) -> None:
    with pytest.raises(SpecError, match="FG206"):
        planned(tmp_path, LINEAR, f"op: add, parameter: {name}, shape: [hidden], init: zeros")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_that_mean_something_elsewhere(tmp_path, name: str) -> None:
    """Of an input, of a saved value beside it, and of all that the module holds."""
    source = f"inputs: {{{name}: [batch, hidden], other: [batch, hidden]}}"
    chain = ("op: sub, input: other", "op: relu, save: kept", "op: add, value: kept")
    first = plan_of(tmp_path, source, *chain)
    owned = (
        f"op: linear, name: {name}, out_features: hidden",
        f"op: mul, parameter: {name}_2, shape: [hidden], init: ones",
        f"op: relu, save: {name}",
        f"op: batch_norm, name: {name}_weight",
        f"op: add, value: {name}",
    )
    second = plan_of(tmp_path, "inputs: {other: [batch, hidden]}", *owned)
    for plan in (first, second):
        compile(render_package(module_of(plan))["demo/__init__.py"], "__init__.py", "exec")
        for op in ops(plan):
            assert len({argument.name for argument in op.arguments}) == len(op.arguments)
    assert next(argument.name for argument in ops(first)[0].arguments) == name


def test_names_that_meet(tmp_path) -> None:
    """Those of the spec stay; what follows from them gives way."""
    plan = plan_of(
        tmp_path,
        "arguments: {hidden: {type: dim}, bn_eps: {type: float, default: 1.0}}",
        "inputs: {x: [batch, hidden], bn_weight: [batch, hidden], grad_x: [batch, hidden]}",
        "op: add, input: bn_weight",
        "op: mul, constant: bn_eps",
        "op: batch_norm, name: bn",
        "op: add, parameter: grad_bn_weight, shape: [hidden], init: ones",
        "op: add, parameter: y, shape: [hidden], init: ones",
        "op: mul, input: grad_x",
    )
    forward, backward, *_ = ops(plan)
    names = [argument.name for argument in forward.arguments]
    assert names[:5] == ["x", "bn_weight", "grad_x", "bn_weight_2", "bn_bias"]
    assert {"grad_bn_weight", "y", "bn_eps", "bn_eps_2"} <= set(names) and forward.results[0] == "y_2"
    assert backward.arguments[0].name == "grad_y_2"
    gradients = {name: tensor.name for name, tensor in plan.variants[0].gradients.items()}
    assert gradients["x"] == "grad_x_2" and gradients["bn_weight"] == "grad_bn_weight_2"
    everything = [*names, *forward.returns, *gradients.values(), backward.arguments[0].name]
    assert len(set(everything)) == len(everything)
    assert plan.chain.name_of("bn.weight") == "bn_weight_2" and plan.chain.name_of("bn_eps") == "bn_eps"


def test_constants_called_as_arguments_of_every_op(tmp_path) -> None:
    """The number of groups and the dtype mode are passed beside them, and a tensor is detached, no number."""
    plan = plan_of(
        tmp_path,
        "inputs: {x: [batch, hidden], groups: [batch, hidden]}",
        "op: group_norm, name: gn, num_groups: 4",
        "op: mul, constant: 2.0, name: dtype_mode",
        "op: add, input: groups, detach: true",
    )
    text = render_package(module_of(plan))["demo/__init__.py"]
    call = text[text.index("return _fused, (") :]
    words = re.findall(r"[\w.]+(?:\(\))?", call[: call.index("\n        )")])
    assert words[2:] == [
        "x",
        "groups.detach()",
        "gn_weight",
        "gn_bias",
        "_mode",
        "_groups",
        "self.dtype_mode",
        "gn.eps",
    ]


def test_what_a_norm_is_called_is_the_same_in_training_and_evaluation(tmp_path) -> None:
    """The mean of `a_running` is a value in training only, and called as the buffer of `a` would be."""
    plan = plan_of(
        tmp_path, "inputs: {x: [batch, hidden]}", "op: batch_norm, name: a_running", "op: batch_norm, name: a"
    )
    train, evaluation = (variant.chain.buffers for variant in plan.variants)
    assert {train[name].attribute: name for name in train}.items() >= {
        evaluation[name].attribute: name for name in evaluation
    }.items()
    saved = {tensor.name for tensor in plan.variants[0].saved}
    assert len(saved) == 4 and not saved & train.keys()


@pytest.mark.torch
def test_schemas_can_be_read(tmp_path) -> None:
    """They have a parser of their own."""
    torch = pytest.importorskip("torch")
    from tests.export.stand_in import schema

    inputs = ", ".join(f"{name}: [batch, hidden]" for name in ("int_", "Tensor", "Scalar", "Any", "inf", "e1", "alias"))
    steps = [f"op: add, input: {name}" for name in ("Tensor", "Scalar", "Any", "inf", "e1", "alias")]
    for op in ops(plan_of(tmp_path, f"inputs: {{{inputs}}}", *steps)):
        read = torch._C.parse_schema(f"fusegen::{op.name}{schema(op)}")
        assert [each.name for each in read.arguments] == [argument.name for argument in op.arguments]


@pytest.mark.parametrize("name", ["forward", "training", "fusegen_strict"])
@pytest.mark.parametrize("step", ["op: linear, name: {}, out_features: hidden", "op: batch_norm, name: {}"])
def test_attributes_of_every_module(tmp_path, name: str, step: str) -> None:
    """`self.forward = nn.Linear(...)` would hide the module's own method."""
    with pytest.raises(SpecError, match="FG20[67]"):
        planned(tmp_path, step.format(name))


@pytest.mark.parametrize("name", ["F", "x"])
def test_saved_values_called_like_something_else(tmp_path, name: str) -> None:
    with pytest.raises(SpecError, match="FG20[68]"):
        planned(tmp_path, f"{LINEAR}, save: {name}", "op: relu", f"op: add, value: {name}")


@pytest.mark.parametrize("name", ["v", "value", "y_value"])
def test_saved_values_beside_the_running_value(tmp_path, name: str) -> None:
    plan = planned(tmp_path, f"{LINEAR}, save: {name}", "op: relu", f"op: add, value: {name}")
    first, second, third, last = reference(plan)
    running = last.removeprefix("return ")
    assert running != name
    assert [first, second] == [f"{name} = self.gemm(x)", f"{running} = F.relu({name})"]
    assert third == f"{running} = {running} + {name}"


def test_an_input_beside_the_running_value(tmp_path) -> None:
    plan = planned(tmp_path, LINEAR, "op: relu", "op: add, input: v", inputs=_HIDDEN.format("v"))
    assert not [line for line in reference(plan) if re.match(r"v\b", line)]
    with pytest.raises(SpecError, match="FG206"):
        planned(tmp_path, LINEAR, "op: relu", "op: add, input: F", inputs=_HIDDEN.format("F"))


def test_a_parameter_beside_an_input(tmp_path) -> None:
    """One leaf of the graph would stand for two tensors."""
    with pytest.raises(SpecError, match="FG305"):
        planned(tmp_path, "op: relu", "op: add, parameter: x, shape: [width], init: randn")


@pytest.mark.parametrize(
    ("code", "steps"),
    [
        ("FG209", ["op: linear, name: gemm, out_features: hiden", "op: relu"]),
        ("FG305", [LINEAR, "op: layer_norm, name: gemm"]),
    ],
    ids=["unknown symbol", "one name twice"],
)
def test_a_mistake_in_the_first_step(tmp_path, code: str, steps: list[str]) -> None:
    """The steps behind it have no running value, which must not end in a traceback."""
    with pytest.raises(SpecError, match=code):
        planned(tmp_path, *steps)


def test_a_linear_layer_over_a_tensor_of_three_dimensions(tmp_path) -> None:
    with pytest.raises(SpecError, match="FG303"):
        planned(tmp_path, LINEAR, shape="[batch, hidden, width]")
