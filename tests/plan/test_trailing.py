"""Norms over several trailing dimensions: where they fit, what is refused, and how chains with them are cut."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import plan_document, planned_document
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: demo
dims: {{batch: 16, positions: 32, features: 64{dims}}}
arguments: {{positions: {{type: dim}}, features: {{type: dim}}{arguments}}}
inputs: {{x: [batch, positions, features]{inputs}}}
dtypes: [float32]
chain:
"""
NORM = "  - {op: layer_norm, name: norm, normalized_shape: [positions, features]}\n"
GATES = ", gate: [batch, 1, 1], place: [positions, features], shift: [batch, 1, features]"


def planned(chain: str, inputs: str = "", dims: str = "", arguments: str = ""):
    return planned_document(parse_yaml(HEAD.format(inputs=inputs, dims=dims, arguments=arguments) + chain, "demo.yaml"))


def test_channels_are_all_elements_of_the_norm_s_dimensions() -> None:
    steps = "".join(f"  - {{op: add, input: {name}}}\n" for name in ("gate", "place", "shift"))
    per = "  - {op: mul, parameter: per, shape: [features], init: ones}\n"
    chain = planned(per + NORM + steps, GATES).plans[0].chain
    assert (chain.rows, chain.channels, chain.trailing) == ("batch", "positions*features", ("positions", "features"))
    assert {name: str(node.axes) for name, node in chain.further.items()} == {
        "gate": "[N]",
        "place": "[C]",
        "shift": "[N, C]",
    }
    assert chain.parameters["norm_weight"].shape == ("positions", "features")
    assert chain.parameters["per"].trailing and chain.parameters["per"].shape == ("features",)
    assert list(chain.broadcast_inputs) == ["shift"] and not chain.compact


def test_dimensions_of_a_call() -> None:
    free = planned(NORM).dimensions
    tied = planned(NORM + "  - {op: add, input: shift}", ", shift: [batch, 1, features]").dimensions
    assert (free.least, free.most) == (2, None)
    assert (tied.least, tied.most) == (3, 3)


def test_a_step_over_the_last_dimension_begins_a_region() -> None:
    chain = (
        NORM + "  - {op: relu}\n  - {op: softmax}\n  - {op: exp}\n  - {op: linear, name: up, out_features: features}\n"
    )
    made = planned(chain + "  - {op: gelu}\n" + NORM.replace("name: norm", "name: last"))
    assert not made.single
    found = {region.name: [step.op for step in region.steps] for region in made.regions}
    assert found == {
        "norm": ["layer_norm", "relu"],
        "region_2": ["softmax", "exp"],
        "up": ["linear"],
        "last": ["gelu", "layer_norm"],
    }
    assert made.regions[1].plan.chain.leading == ("batch", "positions")


def test_a_shape_argument_and_numbers() -> None:
    text = HEAD.format(inputs="", dims="", arguments=", shape: {type: shape, is: [positions, features]}")
    chain = plan_document(parse_yaml(text + NORM.replace("[positions, features]", "shape"), "demo.yaml")).chain
    assert chain.trailing == ("positions", "features")
    text = "fusegen: 1\nname: demo\ndims: {batch: 4}\ninputs: {x: [batch, 6, 8]}\ndtypes: [float32]\nchain:\n"
    chain = plan_document(parse_yaml(text + NORM.replace("[positions, features]", "[6, 8]"), "demo.yaml")).chain
    assert chain.channels == 48


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (NORM.replace("[positions,", "[features,"), "the norm is over [features, features], and the running value"),
        (
            NORM.replace("[positions,", "[batch, positions,"),
            "a norm over 3 dimensions needs an input with rows besides",
        ),
        (NORM.replace("shape: [", "shape: [16, "), "a norm over 3 dimensions needs an input with rows besides"),
        (NORM.replace("features]", "features], width: features"), "either a width or a normalized_shape"),
        (NORM + "  - {op: add, parameter: p, shape: [positions], init: ones}\n", "does not broadcast"),
        (NORM + "  - {op: add, parameter: p, shape: [batch, 1, 1], init: ones}\n", "vary over the channels alone"),
        ("  - {op: bmm, input: x}\n" + NORM, "bmm has to be the only layer"),
        (NORM.replace("[positions, features]", "[hidden, features]"), "'hidden' is not a symbol"),
    ],
)
def test_refused(chain: str, reason: str) -> None:
    with pytest.raises(SpecError) as error:
        planned(chain)
    assert reason in str(error.value)


def test_an_input_that_does_not_broadcast() -> None:
    with pytest.raises(SpecError, match=r"does not broadcast to \[batch, positions, features\]"):
        planned(NORM + "  - {op: add, input: other}\n", ", other: [features, 1]")
