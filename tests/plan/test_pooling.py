"""Pooling in plans: the positions behind it, its regions, and what is refused."""

from __future__ import annotations

import random

import pytest

from fusegen.errors import SpecError
from fusegen.ops import pooling
from fusegen.plan.load import planned_document
from fusegen.plan.sizes.bytes import tensor_bytes, typical_symbols
from fusegen.spec.yaml import parse_yaml

torch = pytest.importorskip("torch")

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 2, channels: 4, height: 9, width: 8}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
"""


def planned(*steps: str):
    return planned_document(parse_yaml(HEAD + "".join(f"  - {{{step}}}\n" for step in steps), "demo.yaml"))


def drawn(rng: random.Random, spatial: int) -> tuple[pooling.Pooling, torch.nn.Module]:
    """A step, and the layer that it is."""

    def each(least: int, most: int) -> object:
        one = rng.randint(least, most)
        return one if rng.random() < 0.5 else tuple(rng.randint(least, most) for _ in range(spatial))

    kind = rng.choice(("max", "avg", "lp", "adaptive_avg", "adaptive_max"))
    options: dict = {"kernel_size": each(2, 4), "stride": each(1, 3), "ceil_mode": rng.random() < 0.5}
    if kind.startswith("adaptive"):
        options = {"output_size": each(1, 4)}
    elif kind == "lp":  # of which PyTorch takes no tuple in one dimension
        options |= {"norm_type": 2.0, "kernel_size": rng.randint(2, 4)}
    else:
        options |= {"padding": each(0, 1)} | ({"dilation": each(1, 2)} if kind == "max" else {})
    step = {
        "max": pooling.MaxPooling,
        "avg": pooling.AveragePooling,
        "lp": pooling.PowerPooling,
    }.get(kind, pooling.AdaptivePooling)(op=f"{kind}_pool{spatial}d", name="pool", **options)
    layer = getattr(torch.nn, step.submodule(spatial).removeprefix("nn."))(**options)
    return step, layer


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_positions_are_pytorchs(spatial) -> None:
    rng, compared = random.Random(spatial), 0
    for _ in range(120):
        step, layer = drawn(rng, spatial)
        sizes = tuple(rng.randint(2, 12) for _ in range(spatial))
        found = step.positions_behind(sizes, int)
        try:
            wanted = tuple(layer(torch.zeros(1, 1, *sizes)).shape[2:])
        except RuntimeError as error:
            # avg_pool3d wants as many positions as the kernel has, padding or not.
            assert found is not None and (min(found) < 1 or "smaller than kernel size" in str(error))
            continue
        assert found == wanted
        compared += 1
    assert compared > 60


def test_the_layer_that_a_step_makes_is_pytorchs() -> None:
    rng = random.Random(7)
    for spatial in (1, 2, 3):
        for _ in range(20):
            step, layer = drawn(rng, spatial)
            text = "".join(step.construct_over(4, spatial))
            made = eval(text.removeprefix("self.pool = "), {"nn": torch.nn})
            assert repr(made) == repr(layer)


def test_a_region_ends_in_front_of_pooling_and_begins_behind_it() -> None:
    plan = planned("op: relu", "op: max_pool2d, name: pool, kernel_size: 2", "op: tanh")
    assert [[step.op for step in region.steps] for region in plan.regions] == [["relu"], ["max_pool2d"], ["tanh"]]
    assert [region.plan is None for region in plan.regions] == [False, True, False]
    last = plan.regions[-1]
    assert [plan.regions[2].plan.spec.dims[dim] for dim in next(iter(last.inputs.values()))[2:]] == [4, 4]


def test_a_pooled_value_is_repeated_over_the_image() -> None:
    plan = planned("op: silu, save: y", "op: adaptive_avg_pool2d, name: pool, output_size: 1", "op: mul, value: y")
    last = plan.regions[-1]
    assert list(last.inputs.values()) == [("batch", "channels", "height", "width"), ("batch", "channels", 1, 1)]
    assert last.plan.chain.compact


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("op: max_pool2d, name: pool, kernel_size: 2",), "PyTorch calls every step"),
        (
            ("op: max_pool2d, name: a, kernel_size: 2", "op: avg_pool2d, name: b, kernel_size: 2"),
            "PyTorch calls every step",
        ),
        (("op: relu", "op: max_pool1d, name: pool, kernel_size: 2"), "takes values of two or three dimensions"),
        (("op: relu", "op: max_pool2d, name: pool, kernel_size: 2", "op: mul, input: x"), "does not broadcast"),
        (("op: relu", "op: max_pool2d, kernel_size: 2"), "name"),
        (("op: relu", "op: max_pool2d, name: pool, kernel_size: other"), "no argument named 'other'"),
        (("op: relu", "op: max_pool2d, name: pool, kernel_size: [2, 2, 2]"), "has 3 entries"),
        (("op: relu", "op: max_pool2d, name: pool, kernel_size: 12"), "the result would have no positions"),
        (
            (
                "op: relu",
                "op: conv2d, name: a, out_channels: channels, kernel_size: other, bias: false",
                "op: conv2d, name: b, out_channels: channels, kernel_size: 1",
                "op: tanh",
            ),
            "no argument named 'other'",
        ),
    ],
)
def test_what_is_refused(steps, words) -> None:
    with pytest.raises(SpecError) as caught:
        planned(*steps)
    assert any(words in each.message for each in caught.value.diagnostics), caught.value


CONV = "op: conv2d, name: conv, out_channels: 6, kernel_size: 3"
POOL = "op: max_pool2d, name: pool, kernel_size: 2"


def regions(*steps: str) -> list[tuple[str, bool]]:
    """The ops of each region, and whether kernels store windows there."""
    found = []
    for region in planned(*steps).regions:
        pool = region.plan and region.plan.chain.result.pool
        found.append((" ".join(step.op for step in region.steps), pool is not None))
    return found


def test_a_region_behind_a_convolution_ends_with_its_windows() -> None:
    assert regions(CONV, "op: relu", POOL) == [("conv2d relu max_pool2d", True)]
    behind = [("conv2d max_pool2d", True), ("gelu avg_pool2d", True)]
    assert regions(CONV, POOL, "op: gelu", "op: avg_pool2d, name: last, kernel_size: 2") == behind


def test_what_is_taken_elsewhere_is_in_memory() -> None:
    """Kernels of their own pool it."""
    steps = (CONV, "op: relu, save: skip", POOL, "op: tanh", "op: mul, from: skip, constant: 2")
    text = HEAD.replace("chain:", "outputs: [pooled, result]\nchain:")
    lines = [f"  - {{{step}}}" for step in steps]
    lines[3] = "  - {op: tanh, save: pooled}"
    module = planned_document(parse_yaml(text + "\n".join(lines), "demo.yaml"))
    found = [(region.steps[0].op, region.is_called) for region in module.regions]
    assert found[:2] == [("conv2d", False), ("max_pool2d", False)]
    assert module.regions[0].plan.chain.result.pool is None
    assert module.regions[1].plan.chain.result.pool is not None


def test_pytorch_pools_images_without_a_convolution() -> None:
    """They may be contiguous, and kernels would have them copied."""
    module = planned("op: silu", POOL, "op: tanh")
    assert [region.is_called for region in module.regions] == [False, True, False]
    assert "channels_last" in module.regions[1].why_called


def test_ops_over_ranks_know_no_windows() -> None:
    norm = "op: batch_norm, name: bn, sync: true"
    assert regions(CONV, norm, "op: relu", POOL) == [("conv2d batch_norm relu", False), ("max_pool2d", True)]


def test_what_windows_move() -> None:
    (region,) = planned(CONV, "op: relu", POOL).regions
    variant = region.plan.variants[0]
    forward, backward = ({t.name: t for t in p.outputs + p.inputs} for p in (variant.forward, variant.backward))
    symbols = typical_symbols(region.plan.spec)
    counts = {
        name: tensor_bytes(region.plan, region.plan.modes[0], symbols, tensor)
        for name, tensor in (forward | backward).items()
    }
    whole, windows = 2 * 6 * 7 * 6, 2 * 6 * 3 * 3
    assert counts["conv_result"] == 4 * whole
    assert counts["y"] == counts["grad_y"] == 4 * windows
    assert counts["y_taps"] == windows
