"""Inputs that broadcast, and masks, beside parts of the channels and dropouts. On the CPU, through the emulator."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from tests.emulate.test_spread_inputs import builder, drawn, results  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# Without a norm each element is by itself: the vectors of a thread go over rows there.
ROWS = """
fusegen: 1
name: divided_rows
dims: {batch: 4, positions: 16, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs:
  x: [batch, positions, features]
  scale: [batch, hidden]
  place: [positions, hidden]
  gate: [batch, 1, 1]
  channel: [hidden]
  keep: [batch, positions, 1]
  causal: [positions, hidden]
dtypes: [float32]
chain:
  - {op: linear, name: fc, out_features: 2 * hidden}
  - {op: chunk, parts: [value, gated], running: gated}
  - {op: silu}
  - {op: mul, value: value}
NORM  - {op: mul, input: scale, plus: 1}
  - {op: add, input: place}
  - {op: mul, input: gate}
  - {op: sub, input: channel, times: -2}
  - {op: masked_fill, mask: causal, constant: 0.5}
  - {op: mul, mask: keep}
  - {op: dropout, name: drop, p: 0.25}
  - {op: drop_path, name: path, p: 0.5}
"""
CONVOLUTION = """
fusegen: 1
name: divided_images
dims: {batch: 4, channels: 6, height: 8, width: 9, hidden: 16}
arguments: {channels: {type: dim}, hidden: {type: dim}}
inputs:
  x: [batch, channels, height, width]
  scale: [batch, hidden, 1, 1]
  place: [1, hidden, height, width]
  gate: [batch, 1, height, width]
  keep: [batch, hidden, height, width]
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: 2 * hidden, kernel_size: 1}
  - {op: chunk, parts: [value, gated], running: gated}
  - {op: batch_norm, name: bn}
  - {op: mul, value: value}
  - {op: mul, input: scale}
  - {op: add, input: place}
  - {op: mul, input: gate}
  - {op: mul, mask: keep}
  - {op: dropout, name: drop, p: 0.25}
  - {op: drop_path, name: path, p: 0.5}
"""
SPECS = {
    "divided_rows": ROWS.replace("NORM", ""),
    "divided_norm": ROWS.replace("NORM", "  - {op: layer_norm, name: norm}\n").replace("_rows", "_norm"),
    "divided_images": CONVOLUTION,
}
SIZES = (
    {"batch": 3, "positions": 5, "features": 4, "hidden": 7, "channels": 3, "height": 3, "width": 5},
    {"batch": 4, "positions": 3, "features": 3, "hidden": 8, "channels": 2, "height": 2, "width": 2},
)


@pytest.fixture(scope="module")
def built(tmp_path_factory, emulation_cache):
    return builder(SPECS, tmp_path_factory.mktemp("beside"), emulation_cache)


@pytest.mark.parametrize("sizes", SIZES, ids=["odd", "even"])
@pytest.mark.parametrize("name", SPECS)
def test_output_and_every_gradient(built, name, sizes) -> None:
    plan, cls = built(name)
    torch.manual_seed(5)
    module = cls(**{key: sizes[key] for key in plan.spec.arguments})
    inputs = drawn(plan, sizes)
    assert module.fusegen_kernels(*inputs)
    torch.manual_seed(7)
    found, grad = results(module, module, inputs)
    torch.manual_seed(7)
    seed = module.fusegen_seed("cpu")
    factors = [module.fusegen_factors(each, seed, grad.shape).double() for each in ("drop", "path")]
    assert all(0 < (each == 0).double().mean() < 1 for each in factors)
    factor = factors[0] * factors[1]
    exact = copy.deepcopy(module).double()
    exact.drop.p = exact.path.p = 0.0
    double = [x.double() if x.is_floating_point() else x for x in inputs]
    expected, _ = results(exact.fusegen_reference, exact, double, grad.double() * factor)
    expected[0] *= factor
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == torch.float32
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=2e-5 * max(1, float(theirs.abs().max())))
