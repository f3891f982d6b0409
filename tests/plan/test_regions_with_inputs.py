"""Regions beside inputs that broadcast, masks, and inputs of more dimensions than two."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.package import render_all
from fusegen.spec.yaml import parse_yaml
from tests.plan.test_regions import regions

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 4, seq: 16, width: 32, hidden: 48}
arguments: {width: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, seq, width]INPUTS}
dtypes: [float32]
chain:
"""
# AdaLN and positions in a region of another width, a mask in two of them, samples that a later one drops.
BLOCK = """\
  - {op: layer_norm, name: norm}
  - {op: mul, input: factor}
  - {op: linear, name: up, out_features: 2 * hidden}
  - {op: geglu}
  - {op: mul, input: cond, plus: 1}
  - {op: add, input: place}
  - {op: mul, mask: keep}
  - {op: dropout, name: drop, p: 0.25}
  - {op: linear, name: down, out_features: width}
  - {op: mul, mask: keep}
  - {op: drop_path, name: path, p: 0.5}
  - {op: add, input: x}
"""
INPUTS = "cond: [batch, hidden], place: [seq, hidden], keep: [batch, seq, 1], factor: []"
MLP = """\
  - {op: linear, name: up, out_features: hidden}
  - {op: relu}
  - {op: linear, name: down, out_features: width}
"""


def planned(chain: str, inputs: str = "") -> ModulePlan:
    head = HEAD.replace("INPUTS", f", {inputs}" if inputs else "")
    return planned_document(parse_yaml(head + chain, "demo.yaml"))


def flat(chain: str, inputs: str = "") -> ModulePlan:
    """The same with two dimensions."""
    head = HEAD.replace("seq, ", "").replace("seq: 16, ", "").replace("INPUTS", f", {inputs}" if inputs else "")
    return planned_document(parse_yaml(head + chain, "demo.yaml"))


def test_what_lies_between_regions_has_the_dimensions_of_the_first_input() -> None:
    made = planned(BLOCK, INPUTS)
    assert [plan.chain.leading for plan in made.plans] == [("batch", "seq")] * 3
    assert [dict(plan.spec.inputs) for plan in made.plans] == [
        {"x": ("batch", "seq", "width"), "factor": ()},
        {
            "norm_result": ("batch", "seq", "width"),
            "cond": ("batch", "hidden"),
            "place": ("seq", "hidden"),
            "keep": ("batch", "seq", 1),
        },
        {"up_result": ("batch", "seq", "hidden"), "keep": ("batch", "seq", 1), "x": ("batch", "seq", "width")},
    ]
    reach = made.plans[1].chain.broadcast_inputs
    assert (reach["cond"].rows, reach["cond"].batched, reach["place"].rows) == ("first", True, "last")
    assert (made.dimensions.least, made.dimensions.most) == (3, 3)
    assert made.fixed_dimensions == {"cond": 2, "place": 2, "factor": 0}


def test_the_text_of_the_module() -> None:
    """The whole reads [batch, channels] as PyTorch's operators do; regions get it as it is given."""
    files = {name: str(text) for name, text in render_all([planned(BLOCK, INPUTS)]).items()}
    whole, region = files["demo/__init__.py"], files["demo_up/__init__.py"]
    assert whole.count("cond = cond[:, None]\n") == 3 and whole.count("self._fusegen_run(") == 1
    assert "own={1: 2, 2: 2, 4: 0}" in whole and "Returns [batch, seq, width]." in whole
    assert "_run(_region_up, norm_result, cond, place, keep)" in whole
    assert "own={1: 2, 2: 2}" in region and "DemoUp._fusegen_dimensions" in region


@pytest.mark.parametrize(("keepdim", "shape"), [("true", "[batch, seq, 1]"), ("false", "[batch, seq]")])
def test_the_module_says_what_a_sum_at_the_end_leaves(keepdim: str, shape: str) -> None:
    made = planned(f"{MLP}  - {{op: sum, keepdim: {keepdim}}}\n")
    assert f"    Returns {shape}.\n" in str(render_all([made])["demo/__init__.py"])


def test_a_gate_of_one_channel_is_a_value_of_each_row() -> None:
    made = flat("""\
  - {op: linear, name: gate, out_features: 1}
  - {op: sigmoid, save: opened}
  - {op: linear, from: x, name: up, out_features: hidden}
  - {op: mul, value: opened}
""")
    assert made.plans[0].spec.inputs["gate_product"] == ("batch", 1)
    assert not made.plans[0].chain.further["gate_product"].is_full


def test_what_takes_a_mask_stays_behind_its_layer() -> None:
    """Alone a function of elements moves to where its result is taken."""
    made = flat(
        """\
  - {op: linear, name: gate, out_features: hidden}
  - {op: masked_fill, mask: closed, constant: 0, save: opened}
  - {op: linear, from: x, name: up, out_features: hidden}
  - {op: mul, value: opened}
""",
        "closed: [batch, 1]",
    )
    assert regions(made)["gate"] == (["linear", "masked_fill"], ["x", "closed"], ["opened"])


@pytest.mark.parametrize(
    ("chain", "inputs", "reason"),
    [
        (
            MLP + "  - {op: silu, from: place, save: opened}\n  - {op: add, from: x, value: opened}\n",
            "place: [hidden, width]",
            "'place' has other rows than 'x', [hidden] and not [batch, seq]",
        ),
        (
            MLP + "  - {op: silu, from: factor, save: opened}\n  - {op: add, from: x, value: opened}\n",
            "factor: []",
            "'factor' has other rows than 'x', [] and not [batch, seq]",
        ),
        (
            MLP.replace("relu", "mul, mask: keep") + "  - {op: add, input: keep}\n",
            "keep: [batch, seq, 1]",
            "the input 'keep' cannot be both a mask and a number",
        ),
        (
            MLP + "  - {op: mul, mask: x}\n",
            "",
            "the input 'x' cannot be both a mask and a number",
        ),
        (
            MLP.replace("relu", "relu, save: r") + "  - {op: mul, mask: r}\n",
            "",
            "no input named 'r'",
        ),
        (
            MLP + "  - {op: batch_norm, name: bn}\n",
            "",
            "batch_norm takes inputs of two dimensions",
        ),
        (
            MLP + "  - {op: add, input: place}\n",
            "place: [seq, hidden]",
            "the input 'place' has the shape [seq, hidden], which does not broadcast to [batch, seq, width]",
        ),
        (
            MLP.replace("out_features: hidden", "out_features: seq"),
            "",
            "of more than two dimensions each has a symbol of its own",
        ),
    ],
)
def test_refusals(chain: str, inputs: str, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        planned(chain, inputs)
    assert reason in str([each.message for each in caught.value.diagnostics])


def test_masks_are_refused_where_a_later_region_exchanges_statistics() -> None:
    chain = MLP + "  - {op: batch_norm, name: bn, sync: true}\n  - {op: mul, mask: keep}\n"
    with pytest.raises(SpecError) as caught:
        flat(chain, "keep: [batch, 1]")
    assert "can have no mask: 'keep'" in str(caught.value)
