"""Regions whose kernels see contiguous images as rows of their last dimensions."""

from __future__ import annotations

import pytest

from fusegen.errors import InternalError, SpecError
from fusegen.ops.reductions import Softmax
from fusegen.plan.load import planned_document
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.sizes.module_sizes import module_sizes, module_typical
from fusegen.render.python.region_formats import writes
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 3, channels: 4, out: 8, height: 6, width: 5}
arguments: {channels: {type: dim}, out: {type: dim}, height: {type: dim}, width: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
"""
NORM = "layer_norm, name: n, normalized_shape: [width]"
WHOLE = "rms_norm, name: m, normalized_shape: [channels, height, width]"
BN = "batch_norm, name: bn"
CONVOLVED = "conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1"
UP = "conv_transpose2d, name: conv, out_channels: out, kernel_size: 4, stride: [1, 2], padding: 2"


def planned(*steps: str) -> ModulePlan:
    chain = "".join(f"  - {{op: {step}}}\n" for step in steps)
    head = HEAD if "out" in chain else HEAD.replace("out: 8, ", "").replace("out: {type: dim}, ", "")
    return planned_document(parse_yaml(head + chain, "demo.yaml"))


def regions(plan: ModulePlan) -> list[str]:
    """Of each region its ops, and what of images its kernels' rows are; "called" of a layer."""
    found = []
    for region in plan.regions:
        frame = region.frame and f"rows of {', '.join(map(str, region.frame.features))}"
        ops = " ".join(step.op for step in region.steps)
        found.append(f"{ops}: {'called' if region.plan is None else frame or 'images'}")
    return found


# Of steps the regions that they become. A batch norm makes a chain one of images.
CASES = {
    (UP, "layer_norm, name: n, normalized_shape: [out]", "gelu", "mul, constant: 0.5"): [
        *("conv_transpose2d: images", "layer_norm gelu mul: rows of out"),
    ],
    ("gelu", "softmax, dim: 3", "tanh"): ["gelu softmax tanh: rows of width"],
    ("gelu, save: y", "softmax, dim: 3", "mul, value: y"): ["gelu: images", "softmax: rows of width", "mul: images"],
    (BN, "softmax, dim: 3, save: y", "gelu", "mul, value: y", "add, input: x"): [
        *("batch_norm: images", "softmax gelu mul: rows of width", "add: images"),
    ],
    (CONVOLVED, "relu", "log_softmax, dim: 3"): ["conv2d relu: images", "log_softmax: rows of width"],
    (BN, NORM, "mul, parameter: a, shape: [width], init: ones", "add, parameter: b, shape: [1], init: ones"): [
        *("batch_norm: images", "layer_norm mul add: rows of width"),
    ],
    (BN, NORM, "mul, parameter: a, shape: [channels, 1, 1], init: ones"): [
        *("batch_norm: images", "layer_norm: rows of width", "mul: images"),
    ],
    (BN, NORM, "relu", WHOLE, "mul, parameter: a, shape: [height, 1], init: ones"): [
        *("batch_norm: images", "layer_norm relu: rows of width", "rms_norm mul: rows of channels, height, width"),
    ],
    (BN, NORM, "amax, dim: 3, keepdim: true", "relu", "softmax, dim: 3"): [
        *("batch_norm: images", "layer_norm amax relu: rows of width", "softmax: rows of width_2"),
    ],
    (NORM, "sum, dim: 3, keepdim: false", "relu", "amax, dim: 2, keepdim: false"): [
        *("layer_norm sum: rows of width", "relu amax: rows of height"),
    ],
    ("relu", "max_pool2d, name: p, kernel_size: 1", "relu", "max, dim: 3, keepdim: true"): [
        *("relu: images", "max_pool2d: called", "relu max: rows of width"),
    ],
    ("gelu", "logsumexp, dim: [3], keepdim: true"): ["gelu logsumexp: rows of width"],
    (NORM, "group_norm, name: g, num_groups: 2"): ["layer_norm: rows of width", "group_norm: images"],
    ("relu", "softmax, dim: 2"): ["relu: images", "softmax: called"],
    ("relu", "normalize, dim: 3"): ["relu: images", "normalize: called"],
}


@pytest.mark.parametrize("steps", CASES, ids=" | ".join)
def test_regions(steps: tuple[str, ...]) -> None:
    assert regions(planned(*steps)) == CASES[steps]


def test_a_chain_of_rows_has_leading_dimensions() -> None:
    assert regions(planned(NORM, "gelu")) == ["layer_norm gelu: images"]
    plan = planned(NORM, "gelu").single
    assert plan is not None and plan.chain.leading and not plan.chain.spatial


def test_the_module_of_one_such_region_is_not_its_package() -> None:
    plan = planned("gelu", "softmax, dim: 3")
    assert plan.single is None and plan.package_names == ["demo", "demo_region_1"]
    assert plan.plans[0].spec.inputs == {"x": ("rows", "width")} and plan.plans[0].spec.chain[1].dim == -1
    assert (plan.dimensions.least, plan.dimensions.most) == (4, 4) and "softmax" in plan.dimensions.reason


@pytest.mark.parametrize(
    "steps",
    [
        ("layer_norm, name: n, normalized_shape: [out]", "gelu"),
        ("softmax, dim: 3", "mul, parameter: a, shape: [out], init: ones"),
    ],
    ids=["norm", "parameter"],
)
def test_sizes_are_those_of_the_images(steps) -> None:
    plan = planned(UP, *steps)
    frame = plan.regions[1].frame
    assert frame is not None and plan.plans[1].chain.channels == "out"
    assert module_typical(plan).symbols[frame.rows] == 3 * 8 * 5
    for channels in (3, 6, 30):
        symbols = module_sizes(plan, 40, 5, channels, 1).symbols
        batch, out, height, width = (symbols[str(dim)] for dim in plan.shapes[plan.returned[0]])
        assert symbols["out"] == out == width and symbols[frame.rows] == batch * out * height


def test_a_convolution_in_front_writes_contiguous_images() -> None:
    assert writes(planned(CONVOLVED, "relu", "softmax, dim: 3", "tanh"))["demo_conv"] is None
    several = planned(CONVOLVED, "relu, save: y", "softmax, dim: 3", "mul, value: y")
    assert "demo_conv" not in writes(several)


def test_other_sizes_are_refused() -> None:
    for steps in ((UP, NORM), (CONVOLVED, "layer_norm, name: n, normalized_shape: [height, height]", "gelu")):
        with pytest.raises(SpecError) as caught:
            planned(*steps)
        assert [each.code for each in caught.value.diagnostics] == ["FG303"]
        assert "the norm is over" in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("save", "operand"), [(", save: y", "value: y"), ("", "parameter: a, shape: [width], init: ones")]
)
def test_what_is_larger_than_a_reduced_value_is_refused(save: str, operand: str) -> None:
    with pytest.raises(SpecError, match="does not broadcast|varies over positions"):
        planned(BN, f"{NORM}{save}", "amax, dim: 3, keepdim: true", f"mul, {operand}")


def test_a_region_over_other_rows_is_not_its_chain(monkeypatch) -> None:
    monkeypatch.setattr(Softmax, "is_over_last", lambda step, spatial: spatial > 0)
    assert regions(planned("gelu", "softmax, dim: 3"))
    with pytest.raises(InternalError, match="region 'region_1' has another key in its softmax, step 2"):
        planned("gelu", "softmax, dim: 2")
