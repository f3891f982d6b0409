"""Inputs that vary over some of the leading dimensions, or over batch or positions of a convolution: FiLM, gates, masks
of attention scores. On the CPU, through the emulator."""

from __future__ import annotations

import copy
import functools

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.convolutions import Calls  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

FILM = """
fusegen: 1
name: film
dims: {batch: 4, positions: 16, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs:
  x: [batch, positions, features]
  scale: [batch, hidden]
  shift: [batch, 1, hidden]
  place: [positions, hidden]
  gate: [batch, 1, 1]
  row: [batch, positions, 1]
  channel: [hidden]
  full: [batch, positions, hidden]
dtypes: [float32]
chain:
  - {op: linear, name: fc, out_features: hidden}
  - {op: layer_norm, name: norm, affine: false}
  - {op: mul, input: scale, plus: 1}
  - {op: add, input: shift}
  - {op: silu}
  - {op: mul, input: gate}
  - {op: add, input: place}
  - {op: mul, input: row}
  - {op: sub, input: channel, times: -2, plus: 0.5}
  - {op: add, input: full}
  - {op: add, parameter: bias, shape: [1, 1, hidden], init: randn}
"""
SCORES = """
fusegen: 1
name: scores
dims: {batch: 2, heads: 3, queries: 8, keys: 12}
inputs:
  x: [batch, heads, queries, keys]
  bias: [heads, 1, keys]
  causal: [queries, keys]
  padding: [batch, 1, 1, keys]
dtypes: [float32]
chain:
  - {op: mul, constant: 0.125}
  - {op: add, input: bias}
  - {op: masked_fill, mask: causal, constant: -inf}
  - {op: masked_fill, mask: padding, constant: -inf}
  - {op: softmax}
"""
CONVOLUTION = """
fusegen: 1
name: convolved
dims: {batch: 4, channels: 6, height: 8, width: 9, hidden: 16, out_height: 6, out_width: 7}
arguments: {channels: {type: dim}, hidden: {type: dim}}
inputs:
  x: [batch, channels, height, width]
  gate: [batch, hidden, 1, 1]
  attention: [batch, 1, out_height, out_width]
  channel: [hidden, 1, 1]
  sample: [batch, 1, 1, 1]
  everywhere: [1, hidden, out_height, out_width]
  number: [1]
  keep: [batch, 1, 1, 1]
  pixel: [batch, 1, out_height, out_width]
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 3, bias: false}
  - {op: batch_norm, name: bn}
  - {op: mul, input: gate}
  - {op: add, input: attention}
  - {op: relu}
  - {op: mul, input: channel}
  - {op: mul, input: sample, plus: 2}
  - {op: add, input: everywhere}
  - {op: add, input: number}
  - {op: mul, mask: keep}
  - {op: masked_fill, mask: pixel, constant: 0.5}
"""
# Contiguous tensors go through tiles here: no input has one value for all channels of a position.
TILES = """
fusegen: 1
name: tiled
dims: {batch: 4, channels: 6, height: 8, width: 9, hidden: 16}
arguments: {channels: {type: dim}, hidden: {type: dim}}
inputs:
  x: [batch, channels, height, width]
  gate: [batch, hidden, 1, 1]
  line: [batch, hidden, height, 1]
  channel: [hidden, 1, 1]
  everywhere: [1, hidden, height, width]
  full: [batch, hidden, height, width]
  number: [1]
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 1}
  - {op: add, input: line}
  - {op: batch_norm, name: bn}
  - {op: mul, input: gate, plus: 1}
  - {op: add, input: everywhere}
  - {op: silu}
  - {op: mul, input: channel}
  - {op: add, input: full}
  - {op: mul, input: number}
"""
SPECS = {"film": FILM, "scores": SCORES, "convolved": CONVOLUTION, "tiled": TILES}
# Values of the symbols; the results of a convolution follow.
SIZES = {
    "film": (
        {"batch": 3, "positions": 5, "features": 4, "hidden": 7},
        {"batch": 2, "positions": 3, "features": 3, "hidden": 8},
        {"batch": 1, "positions": 1, "features": 2, "hidden": 1},
        # Of which no kernel holds a row, with vectors and without.
        {"batch": 2, "positions": 2, "features": 2, "hidden": 20000},
        {"batch": 2, "positions": 3, "features": 2, "hidden": 20001},
    ),
    "scores": ({"batch": 2, "heads": 3, "queries": 5, "keys": 9}, {"batch": 3, "heads": 2, "queries": 2, "keys": 8}),
    "convolved": (
        {"batch": 2, "channels": 3, "height": 5, "width": 4, "hidden": 6, "out_height": 3, "out_width": 2},
        {"batch": 3, "channels": 1, "height": 3, "width": 4, "hidden": 8, "out_height": 1, "out_width": 2},
    ),
    "tiled": (
        {"batch": 2, "channels": 3, "height": 5, "width": 7, "hidden": 7},
        {"batch": 3, "channels": 2, "height": 9, "width": 12, "hidden": 12},
        {"batch": 1, "channels": 2, "height": 33, "width": 33, "hidden": 4},
    ),
}
CASES = [(name, sizes) for name in SPECS for sizes in SIZES[name]]


def builder(specs, root, cache, checked=False):
    """By the name of a spec: its plan and its module's class, of a package that is emulated when it is first wanted.
    checked: see emulate_package()."""

    @functools.cache
    def build(name):
        plan = write(name, specs[name], root)
        return plan, getattr(emulate_package(root / name, cache=cache, checked=checked), plan.spec.class_name)

    return build


@pytest.fixture(scope="module")
def built(tmp_path_factory, emulation_cache):
    return builder(SPECS, tmp_path_factory.mktemp("spread"), emulation_cache, checked=True)


def drawn(plan, sizes):
    """A module's inputs; masks leave the first of each dimension."""
    found = []
    for each in plan.chain.inputs:
        values = torch.randn([sizes.get(dim, dim) for dim in each.shape])
        if each.name in plan.chain.masks:
            values = values < -0.3
            values[..., 0] = False
        found.append(values)
    return found


def results(call, module, inputs, grad=None):
    """Output and all gradients, and the gradient of the output that was taken."""
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    y = call(*leaves)
    grad = torch.randn_like(y) if grad is None else grad.to(y.dtype)
    wanted = [x for x in leaves if x.requires_grad] + list(module.parameters())
    return [y.detach(), *torch.autograd.grad(y, wanted, grad)], grad


@pytest.mark.parametrize(
    "name, sizes", CASES, ids=lambda each: each if isinstance(each, str) else str(list(each.values()))
)
def test_output_and_every_gradient(built, name, sizes):
    plan, cls = built(name)
    torch.manual_seed(5)
    module = cls(**{key: sizes[key] for key in plan.spec.arguments})
    inputs = drawn(plan, sizes)
    assert module.fusegen_kernels(*inputs)
    for training in (True, False):
        found, grad = results(module.train(training), module, inputs)
        exact = copy.deepcopy(module).double()
        double = [x.double() if x.is_floating_point() else x for x in inputs]
        expected, _ = results(exact.fusegen_reference, exact, double, grad)
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.shape == theirs.shape and mine.dtype == torch.float32
            torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=2e-5 * max(1, float(theirs.abs().max())))


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
def test_inputs_of_fewer_rows_beside_tiles(built, last):
    """In a call with images the ops take them as in one with rows: the result is the same."""
    plan, cls = built("tiled")
    sizes = SIZES["tiled"][1]
    module = cls(sizes["channels"], sizes["hidden"])
    x, *others = drawn(plan, sizes)
    expected, grad = results(module, module, [x, *others])
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    with Calls() as calls:
        found, _ = results(module, module, [x, *others], grad)
    images, rows = (3, 12, 108), (3 * 108, 12)
    assert all((rows if last else images) in shapes for shapes in calls.ours)
    assert all((3, 12) in shapes and (108, 12) in shapes for shapes in calls.ours[:1])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5 * max(1, float(theirs.abs().max())))


def test_a_row_whose_scores_are_all_masked_is_nan_as_in_pytorch(built):
    plan, cls = built("scores")
    x, bias, causal, padding = drawn(plan, SIZES["scores"][0])
    causal[2] = True
    module = cls()
    y, expected = module(x, bias, causal, padding), module.fusegen_reference(x, bias, causal, padding)
    assert torch.equal(y.isnan(), expected.isnan()) and y[:, :, 2].isnan().all() and not y[:, :, :2].isnan().any()


def test_other_dimensions_are_refused_and_other_shapes_run_in_pytorch(built):
    plan, cls = built("film")
    sizes = SIZES["film"][0]
    module, inputs = cls(sizes["features"], sizes["hidden"]), drawn(plan, sizes)
    with pytest.raises(ValueError, match=r"inputs must be \[\*, \*, channels\], got \[5, 4\]: the spec gives"):
        module(inputs[0][0], *inputs[1:])
    with pytest.raises(ValueError, match=r"input 2 must have 2 dimensions, got \[3, 1, 7\]"):
        module(inputs[0], inputs[1][:, None], *inputs[2:])
    use = module.fusegen_kernels(inputs[0], inputs[1], inputs[2].expand(3, 5, 7), *inputs[3:])
    assert not use and use.reason.startswith("shift is torch.float32 [3, 5, 7]")


def test_compiled_without_a_break_in_the_graph(built):
    plan, cls = built("film")
    sizes = SIZES["film"][0]
    torch.manual_seed(6)
    module, inputs = cls(sizes["features"], sizes["hidden"]), drawn(plan, sizes)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    found, grad = results(module, module, inputs)
    for mine, theirs in zip(results(compiled, module, inputs, grad)[0], found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
