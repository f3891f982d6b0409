"""Upsampling in plans: the sizes behind it, its regions, and what is refused."""

from __future__ import annotations

import random

import pytest

from fusegen.chain.shape import KnownSizes, Shape
from fusegen.errors import SpecError
from fusegen.ops import upsampling
from fusegen.ops.called_layer import CalledLayer
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml

torch = pytest.importorskip("torch")

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 2, channels: 8, height: 6, width: 4, quarter: 2}
arguments: {channels: {type: dim}, quarter: {type: dim}, factor: {type: int, typical: 2}}
inputs: {x: [batch, channels, height, width]}
chain:
"""
ROWS = """\
fusegen: 1
name: demo
dims: {batch: 2, features: 8}
inputs: {x: [batch, features]}
chain:
"""


def planned(*steps: str, head: str = HEAD):
    unused = [name for name in ("quarter", "factor") if not any(name in step for step in steps)]
    for name in unused:
        head = head.replace(f", {name}: 2", "").replace(f", {name}: {{type: dim}}", "")
        head = head.replace(f", {name}: {{type: int, typical: 2}}", "")
    return planned_document(parse_yaml(head + "".join(f"  - {{{step}}}\n" for step in steps), "demo.yaml"))


def drawn(rng: random.Random, spatial: int) -> CalledLayer:
    if spatial == 2 and rng.random() < 0.3:
        if rng.random() < 0.5:
            return upsampling.PixelShuffle(op="pixel_shuffle", name="up", upscale_factor=rng.randint(1, 2))
        return upsampling.PixelUnshuffle(op="pixel_unshuffle", name="up", downscale_factor=rng.randint(1, 2))
    modes = ["nearest", "nearest-exact", *{1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[spatial]]
    options: dict = {"mode": rng.choice(modes)}
    if "nearest" not in options["mode"]:
        options["align_corners"] = rng.random() < 0.5
    if rng.random() < 0.5:
        sizes = tuple(rng.randint(1, 9) for _ in range(spatial))
        options["size"] = sizes if rng.random() < 0.5 else sizes[0]
    else:
        factors = tuple(rng.choice((0.5, 1.0, 1.3, 2.0, 2.7)) for _ in range(spatial))
        options["scale_factor"] = factors if rng.random() < 0.5 else factors[0]
    return upsampling.Upsample(op="upsample", name="up", **options)


def layer_of(step: CalledLayer, spatial: int) -> torch.nn.Module:
    return eval("".join(step.construct_over(4, spatial)).removeprefix("self.up = "), {"nn": torch.nn})


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_sizes_are_pytorchs(spatial) -> None:
    """Of the layer that the step makes."""
    rng = random.Random(spatial)
    for _ in range(80):
        step, sizes = drawn(rng, spatial), (2, 4, *(2 * rng.randint(1, 5) for _ in range(spatial)))
        found = step.shape_behind(Shape.of(sizes, spatial), KnownSizes())
        assert found is not None
        try:
            wanted = tuple(layer_of(step, spatial)(torch.zeros(sizes)).shape)
        except RuntimeError:  # no position
            assert min(size for size in found.sizes() if isinstance(size, int)) < 1
            continue
        assert found.sizes() == wanted


def test_regions_and_their_sizes() -> None:
    plan = planned(
        "op: relu",
        "op: upsample, name: up, scale_factor: factor, mode: bilinear",
        "op: silu",
        "op: pixel_shuffle, name: shuffle, upscale_factor: 2, channels: quarter",
        "op: group_norm, name: norm, num_groups: 2",
    )
    assert [[step.op for step in region.steps] for region in plan.regions] == [
        ["relu"], ["upsample"], ["silu"], ["pixel_shuffle"], ["group_norm"],
    ]  # fmt: skip
    assert [region.plan is None for region in plan.regions] == [False, True, False, True, False]
    last = plan.regions[-1]
    shape = next(iter(last.inputs.values()))
    assert shape[1] == "quarter" and [last.plan.spec.dims[dim] for dim in shape[2:]] == [24, 16]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("op: upsample, name: up, scale_factor: 2",), "PyTorch calls every step"),
        (("op: relu", "op: upsample, name: up"), "either a size or a scale_factor"),
        (("op: relu", "op: upsample, name: up, size: 4, scale_factor: 2"), "either a size or a scale_factor"),
        (("op: relu", "op: upsample, name: up, size: 4, mode: linear"), "takes 1 dimensions of positions, not 2"),
        (("op: relu", "op: upsample, name: up, size: 4, align_corners: true"), "nearest has no align_corners"),
        (("op: relu", "op: upsample, name: up, size: [4, 4, 4]"), "has 3 entries"),
        (("op: relu", "op: upsample, name: up, size: other"), "no argument named 'other'"),
        (("op: relu", "op: upsample, name: up, scale_factor: 0.1"), "the result would have no positions"),
        (("op: relu", "op: upsample, size: 4"), "name"),
        (("op: relu", "op: upsample, name: up, size: 4, mode: area"), "mode"),
        (("op: relu", "op: upsample, name: up, scale_factor: 2", "op: mul, input: x"), "does not broadcast"),
        (("op: relu", "op: pixel_shuffle, name: up, upscale_factor: 3"), "by 3 does not divide 8 channels of 6 x 4"),
        (("op: relu", "op: pixel_unshuffle, name: up, downscale_factor: 4"), "by 4 does not divide"),
        (
            ("op: relu", "op: pixel_shuffle, name: up, upscale_factor: 1, channels: quarter", "op: tanh"),
            "the result has 8 channels, and not 2",
        ),
    ],
)
def test_what_is_refused(steps, words) -> None:
    with pytest.raises(SpecError) as caught:
        planned(*steps)
    assert any(words in each.message for each in caught.value.diagnostics), caught.value


@pytest.mark.parametrize("step", ["upsample, name: up, size: 4", "pixel_shuffle, name: up, upscale_factor: 2"])
def test_rows_are_refused(step) -> None:
    with pytest.raises(SpecError, match="is of images|takes 2 dimensions of positions"):
        planned("op: relu", f"op: {step}", "op: tanh", head=ROWS)
