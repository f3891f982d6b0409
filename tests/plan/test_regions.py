"""How the steps of a chain are cut into regions, and what these take from each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fusegen.chain.images import with_layers_over_channels
from fusegen.errors import SpecError
from fusegen.ops.catalogue import STEPS
from fusegen.ops.lacking import unknown_op
from fusegen.plan.load import plan_document, planned_document, planned_files
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.regions.partition import Partition
from fusegen.plan.regions.region import is_single
from fusegen.render.package import render_all
from fusegen.spec.model import spec_model
from fusegen.spec.validate import validate
from fusegen.spec.yaml import parse_yaml, read_yaml
from tests.plan.planning import ROOT

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 16, width: 32, hidden: 64}
arguments: {width: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, width]}
dtypes: [float32]
chain:
"""
MLP = """\
  - {op: rms_norm, name: norm}
  - {op: linear, name: up, out_features: hidden}
  - {op: gelu}
  - {op: linear, name: down, out_features: width}
  - {op: add, input: x}
"""
SWIGLU = """\
  - {op: linear, name: gate, out_features: hidden}
  - {op: silu, save: opened}
  - {op: linear, from: x, name: up, out_features: hidden}
  - {op: mul, value: opened}
  - {op: linear, name: down, out_features: width}
"""


def written(chain: str, more: str = ""):
    head = HEAD if "hidden" in chain else HEAD.replace(", hidden: 64", "").replace(", hidden: {type: dim}", "")
    return parse_yaml(head + chain + more, "demo.yaml")


def planned(chain: str, more: str = ""):
    return planned_document(written(chain, more))


def regions(made: ModulePlan) -> dict[str, tuple[list[str], list[str], list[str]]]:
    """Of each the ops, the values that it takes and those that it makes."""
    found = [region for region in made.regions]
    return {each.name: ([step.op for step in each.steps], list(each.inputs), list(each.results)) for each in found}


def test_each_layer_begins_a_region_and_what_is_in_front_of_it_is_one() -> None:
    made = planned(MLP)
    assert regions(made) == {
        "norm": (["rms_norm"], ["x"], ["norm_result"]),
        "up": (["linear", "gelu"], ["norm_result"], ["up_result"]),
        "down": (["linear", "add"], ["up_result", "x"], ["down_result"]),
    }
    assert [plan.spec.name for plan in made.plans] == ["demo_norm", "demo_up", "demo_down"]
    assert made.plans[1].chain.anchor.width == "width" and made.plans[1].chain.channels == "hidden"
    assert made.plans[2].spec.inputs == {"up_result": ("batch", "hidden"), "x": ("batch", "width")}
    assert made.has_precisions


def test_the_longest_name_of_a_spec_has_packages_of_its_regions() -> None:
    name = "n" * 64
    made = planned_document(parse_yaml((HEAD + MLP).replace("name: demo", f"name: {name}"), "demo.yaml"))
    assert [plan.spec.name for plan in made.plans] == [f"{name}_{region}" for region in ("norm", "up", "down")]
    assert f"{name}_norm/kernels.cu" in render_all([made])


def test_what_is_behind_a_gate_is_computed_where_its_result_is_taken() -> None:
    made = planned(SWIGLU)
    assert regions(made) == {
        "gate": (["linear"], ["x"], ["gate_product"]),
        "up": (["linear", "silu", "mul"], ["x", "gate_product"], ["up_result"]),
        "down": (["linear"], ["up_result"], ["down_result"]),
    }
    # PyTorch calls a layer that nothing is behind, so that there is no choice of a precision.
    assert [plan.spec.name for plan in made.plans] == ["demo_up"] and not made.has_precisions
    (kernel,) = made.plans[0].variants[0].forward.schedules[0].kernels
    assert {tensor.name for tensor in kernel.reads if tensor.is_full} == {"up_product", "gate_product"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("silu, save", "softmax, save"), "the row kernel reads the product twice"),
        (("opened}\n  - {op: linear, name: down, out_features: width}", "opened}"), None),
        (
            ("  - {op: linear, name: down", "  - {op: add, value: opened, swap: true}\n  - {op: linear, name: down"),
            None,
        ),
        (("  - {op: linear, name: down, out_features: width}", "outputs: [result, opened]"), "opened is returned"),
        (("out_features: width}", "out_features: hidden}\n  - {op: add, value: opened}"), "two regions take it"),
    ],
    ids=["softmax", "without a last layer", "taken twice in one region", "returned", "taken by two regions"],
)
def test_a_tail_moves_only_where_it_may(change: tuple[str, str], reason: str | None) -> None:
    assert change[0] in SWIGLU
    made = planned(SWIGLU.replace(*change))
    assert [region.tail_in for region in made.regions][0] == ("" if reason else "up")


def test_a_branch_within_a_region_is_no_other_region() -> None:
    chain = "  - {op: relu, save: a}\n  - {op: sigmoid, from: x, save: b}\n  - {op: mul, from: a, value: b}\n"
    plan = planned(chain)
    assert plan.single
    text = render_all([plan])["demo/__init__.py"]
    assert "a = F.relu(x)" in text and "b = torch.sigmoid(x)" in text and "v = a * b" in text


def test_several_results() -> None:
    chain = MLP.replace("gelu}", "gelu, save: inner}").replace("x}", "x, save: whole}")
    made = planned(chain, "outputs: [inner, whole]\n")
    assert made.returned == ("inner", "whole")
    chain = "  - {op: add, input: other, save: total}\n  - {op: softmax}\n"
    text = HEAD.replace("{x: [batch, width]}", "{x: [batch, width], other: [batch, width]}")
    text = text.replace(", hidden: 64", "").replace(", hidden: {type: dim}", "").replace("width: {type: dim}", "")
    plan = planned_document(parse_yaml(text + chain + "outputs: [total, result]\n", "demo.yaml"))
    variant = plan.plans[0].variants[0]
    assert variant.results == ("y", "total") and variant.result_gradients == ("grad_y", "grad_total")
    # One tensor of full size in place of the two that its sum is of.
    full = {tensor.name for tensor in variant.backward.inputs if tensor.is_full}
    assert full == {"grad_y", "grad_total", "total"}
    assert "order=(1, 0)," in render_all([plan])["demo/__init__.py"]


def test_a_value_with_the_name_of_the_one_at_the_end() -> None:
    """A region whose value at the end has no name returns that, and not the value `result`."""
    chain = (
        "  - {op: linear, name: a, out_features: width}\n  - {op: relu, save: result}\n  - {op: softmax, save: s}\n"
        "  - {op: add, value: result}\n  - {op: linear, name: b, out_features: width}\n  - {op: mul, value: s}\n"
    )
    made = planned(chain)
    assert made.plans[0].spec.outputs == ("s", "a_result") == made.regions[0].results
    assert made.plans[0].chain.result.node is not made.plans[0].chain.running[-1]


def test_a_parameter_that_two_regions_use_is_made_once() -> None:
    chain = (
        "  - {op: mul, parameter: scale, shape: [1], init: ones}\n  - {op: linear, name: up, out_features: hidden}\n"
    )
    text = render_all([planned(chain + "  - {op: div, parameter: scale}\n")])["demo/__init__.py"]
    assert text.count("nn.Parameter(") == 1 and text.count("self.scale") >= 3


def test_one_precision_for_all_products() -> None:
    chain = MLP.replace("}\n  - {op: gelu", ", precision: fp32_split}\n  - {op: gelu")
    with pytest.raises(SpecError, match="all linear layers of a module have one precision"):
        planned(chain)
    made = planned(chain.replace("out_features: width}", "out_features: width, precision: fp32_split}"))
    assert 'precision: str = "fp32_split"' in render_all([made])["demo/__init__.py"]


def test_where_one_plan_is_wanted_regions_are_refused() -> None:
    with pytest.raises(SpecError, match=r"there is no single plan of demo: it has several regions \(norm, up, down\)"):
        plan_document(parse_yaml(HEAD + MLP, "demo.yaml"))


def test_names_of_packages_are_not_given_twice(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(HEAD + MLP)
    (tmp_path / "demo_up.yaml").write_text(
        HEAD.replace("demo", "demo_up") + "  - {op: linear, name: a, out_features: hidden}\n"
    )
    with pytest.raises(SpecError, match="'demo_up' would give the package a name"):
        planned_files([tmp_path / "demo.yaml", tmp_path / "demo_up.yaml"])


KINDS = {
    "projection head": (
        "  - {op: linear, name: a, out_features: hidden}\n  - {op: batch_norm, name: bn1}\n  - {op: relu}\n"
        "  - {op: linear, name: b, out_features: width}\n  - {op: batch_norm, name: bn2, affine: false}\n",
        ["a", "b"],
    ),
    "squeeze and excite": (
        "  - {op: linear, name: a, out_features: hidden}\n  - {op: relu}\n"
        "  - {op: linear, name: b, out_features: width}\n  - {op: sigmoid}\n  - {op: mul, input: x}\n",
        ["a", "b"],
    ),
    "norms behind and in front": (
        "  - {op: linear, name: a, out_features: hidden}\n  - {op: layer_norm, name: n1}\n"
        "  - {op: linear, name: b, out_features: width}\n  - {op: add, input: x, save: s}\n"
        "  - {op: rms_norm, name: n2}\n  - {op: linear, name: c, out_features: hidden}\n  - {op: tanh}\n"
        "  - {op: linear, name: d, out_features: width}\n  - {op: add, value: s}\n",
        ["a", "b", "c", "d"],
    ),
    "two branches of one value": (
        "  - {op: linear, name: a, out_features: hidden, save: z}\n"
        "  - {op: sigmoid, save: g}\n  - {op: tanh, from: z}\n  - {op: mul, value: g}\n"
        "  - {op: linear, name: b, out_features: width}\n  - {op: softmax}\n",
        ["a", "b"],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_chains(kind: str) -> None:
    chain, names = KINDS[kind]
    made = planned(chain)
    assert [region.name for region in made.regions] == names and len(made.plans) == len(names)
    files = render_all([made])
    calls = files["demo/__init__.py"].split("def _fusegen_chain")[1]
    assert [calls.index(f"_region_{name}") for name in names] == sorted(
        calls.index(f"_region_{name}") for name in names
    )
    for name in ("demo", *(f"demo_{each}" for each in names)):
        ast.parse(files[f"{name}/__init__.py"])


ONE_CHANNEL = "  - {op: relu, save: v}\n  - {op: sum, keepdim: true}\n"
CUTS = {
    "relu": "  - {op: relu, save: v}\n  - {op: add, value: v}\n",
    "from the input": "  - {op: relu}\n  - {op: tanh, from: x}\n",
    "from what it saves": ONE_CHANNEL + "  - {op: tanh, from: v}\n",
    "a row of one element": ONE_CHANNEL + "  - {op: softmax}\n  - {op: mul, value: v}\n",
    "a value of the rows": ONE_CHANNEL + "  - {op: mul, value: v}\n",
    "parts of what is saved": (
        "  - {op: relu, save: v}\n  - {op: chunk, parts: [a, b], running: a}\n  - {op: mul, value: b}\n"
    ),
    "gate": SWIGLU,
    "layer": "  - {op: linear, name: up, out_features: hidden}\n  - {op: gelu}\n",
}


@pytest.mark.parametrize(
    "chain", [*CUTS, *sorted((ROOT / "specs").glob("*.yaml"))], ids=lambda chain: getattr(chain, "stem", chain)
)
def test_what_is_one_chain_has_one_region(chain) -> None:
    """Whether a chain has several is decided before it is cut."""
    if chain in CUTS:
        head = (
            HEAD if "hidden" in CUTS[chain] else HEAD.replace(", hidden: 64", "").replace(", hidden: {type: dim}", "")
        )
        document = parse_yaml(head + CUTS[chain], "demo.yaml")
    else:
        document = read_yaml(chain)
    spec = with_layers_over_channels(validate(spec_model(STEPS, unknown_op), document))
    assert is_single(spec) == (len(Partition(spec, document).regions) == 1)
