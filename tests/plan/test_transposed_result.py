"""Values of each row beside values for the channels in a dimension in front of them: shapes, and what is refused."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.plan.modules.dimensions import dimensions
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 16, features: 64}
arguments: {features: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
"""
MIN = "  - {op: min, keepdim: true}\n"
ADD = "  - {op: add, parameter: bias, shape: [1, features, 1, 1], init: randn}\n"


def planned(chain: str, head: str = HEAD):
    return planned_document(parse_yaml(head + chain, "demo.yaml"))


@pytest.mark.parametrize(
    ("chain", "shape"),
    [
        (MIN + ADD, (1, "features", "batch", 1)),
        (MIN + ADD.replace("[1, features, 1, 1]", "[features, 1, 1]"), ("features", "batch", 1)),
        (MIN.replace("true", "false") + ADD.replace("[1, features, 1, 1]", "[features, 1]"), ("features", "batch")),
        (MIN + ADD.replace("[1, features, 1, 1]", "[features]"), ("batch", "features")),
    ],
)
def test_the_shape_of_the_result(chain: str, shape: tuple) -> None:
    (plan,) = planned(chain + "  - {op: relu}\n").plans
    assert plan.chain.result.shape(("batch",), "features") == shape
    assert (dimensions(plan).most == 2) == bool(plan.chain.result.transposed)
    copied = any("the module copies the result" in each for each in plan.variants[0].forward.reasons)
    assert copied == bool(plan.chain.result.transposed)
    assert plan.chain.parameters["bias"].axes.items == (("C", None),)


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (MIN + ADD.replace("[1, features, 1, 1]", "[1, batch, 1, 1]"), "does not broadcast to [batch, features]"),
        (MIN + ADD.replace("[1, features, 1, 1]", "[features, features, 1, 1]"), "does not broadcast"),
        (ADD, "does not broadcast to [batch, features]"),
        (MIN + ADD + "  - {op: softmax}\n", "no result whose rows come behind the channels"),
        (MIN + ADD + "  - {op: mul, parameter: bias}\n", "only a function of its elements, or a number, can follow"),
        (MIN + ADD + "  - {op: linear, name: up, out_features: features}\n", "whose rows come behind the channels"),
    ],
)
def test_refused(chain: str, reason: str) -> None:
    with pytest.raises(SpecError) as error:
        planned(chain)
    assert reason in str(error.value)


def test_several_results_are_refused() -> None:
    with pytest.raises(SpecError, match="returns one result"):
        planned("  - {op: relu, save: here}\n" + MIN + ADD + "outputs: [here, result]\n")
