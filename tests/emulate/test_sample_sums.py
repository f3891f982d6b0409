"""Gradients that are sums over the rows of each sample, taken by every kernel that has them in its last pass."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.convolutions import Calls  # noqa: E402
from tests.emulate.test_spread_inputs import drawn  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

_HEAD = """
fusegen: 1
name: {name}
dims: {{batch: 4, positions: 16, features: 32}}
arguments: {{features: {{type: dim}}}}
inputs: {{{inputs}}}
dtypes: [{dtypes}]
chain:
"""
ROWS = (
    _HEAD.format(
        name="sums_by_rows",
        dtypes="float32, bfloat16",
        inputs="x: [batch, positions, features], shift: [batch, features], scale: [batch, 1, features]",
    )
    + """\
  - {op: layer_norm, name: norm, bias: false}
  - {op: mul, input: scale, plus: 1}
  - {op: add, input: shift}
"""
)
# Of two inputs with one gradient, beside sums of all rows; the last has samples of its own.
POINTWISE = (
    _HEAD.format(
        name="sums_in_one_pass",
        dtypes="float32",
        inputs=(
            "x: [batch, positions, 2 * features], gate: [batch, features], a: [batch, features], b: [batch, features], "
            "place: [positions, features]"
        ),
    )
    + """\
  - {op: glu}
  - {op: mul, input: gate}
  - {op: add, input: a}
  - {op: sub, input: b}
  - {op: mul, parameter: gamma, shape: [features], init: randn}
  - {op: add, input: place}
"""
)
COLUMNS = """
fusegen: 1
name: sums_behind_columns
dims: {batch: 4, channels: 6, height: 8, width: 9, hidden: 16}
arguments: {channels: {type: dim}, hidden: {type: dim}}
inputs:
  x: [batch, channels, height, width]
  gamma: [batch, hidden, 1, 1]
  beta: [batch, hidden, 1, 1]
  line: [batch, hidden, height, 1]
  other: [batch, hidden, height, width]
dtypes: [float32, bfloat16]
chain:
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 1}
  - {op: batch_norm, name: bn}
  - {op: mul, input: gamma, plus: 1}
  - {op: add, input: beta}
  - {op: mul, input: line}
  - {op: add, input: other}
  - {op: silu}
"""
SPECS = {"sums_by_rows": ROWS, "sums_in_one_pass": POINTWISE, "sums_behind_columns": COLUMNS}
# Samples of many rows and of one, with vectors and without; more samples than the grid has blocks for at a time.
SIZES = {
    "sums_by_rows": (
        {"batch": 3, "positions": 70, "features": 24},
        {"batch": 2, "positions": 61, "features": 7},
        {"batch": 5, "positions": 1, "features": 130},
        {"batch": 2, "positions": 9, "features": 5001},
    ),
    "sums_in_one_pass": (
        {"batch": 3, "positions": 70, "features": 24},
        {"batch": 2, "positions": 67, "features": 9},
        {"batch": 3, "positions": 52, "features": 6},
        {"batch": 300, "positions": 1, "features": 5},
    ),
    "sums_behind_columns": (
        {"batch": 3, "channels": 3, "height": 20, "width": 20, "hidden": 8},
        {"batch": 2, "channels": 2, "height": 23, "width": 31, "hidden": 5},
        {"batch": 3, "channels": 2, "height": 1, "width": 2, "hidden": 3},
    ),
}
CASES = [(name, sizes) for name in SPECS for sizes in SIZES[name]]
IDS = [f"{name}-{'x'.join(map(str, sizes.values()))}" for name, sizes in CASES]


@pytest.fixture(scope="module")
def built(tmp_path_factory, emulation_cache):
    root, known = tmp_path_factory.mktemp("samples"), {}

    def build(name):
        if name not in known:
            plan = write(name, SPECS[name], root)
            package = emulate_package(root / name, cache=emulation_cache)
            known[name] = plan, getattr(package, plan.spec.class_name)
        return known[name]

    return build


def prepared(built, name, sizes, dtype=torch.float32):
    plan, cls = built(name)
    torch.manual_seed(5)
    module = cls(**{key: sizes[key] for key in plan.spec.arguments}).to(dtype)
    sizes = {**sizes, "2 * features": 2 * sizes.get("features", 0)}
    inputs = [x.to(dtype) for x in drawn(plan, sizes)]
    module.fusegen_strict = True
    return module, inputs


def results(call, module, inputs, grad=None):
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = call(*leaves)
    grad = torch.randn(y.shape).to(y.dtype) if grad is None else grad.to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [*leaves, *module.parameters()], grad)], grad


@pytest.mark.parametrize(("name", "sizes"), CASES, ids=IDS)
def test_output_and_every_gradient(built, name, sizes) -> None:
    for dtype, unit in ((torch.float32, 2e-5), (torch.bfloat16, 2e-2))[: len(built(name)[0].spec.dtypes)]:
        module, inputs = prepared(built, name, sizes, dtype)
        for last in (False, True)[: 1 + (inputs[0].dim() == 4)]:
            given = [x.contiguous(memory_format=torch.channels_last) for x in inputs] if last else inputs
            found, grad = results(module, module, given)
            exact = copy.deepcopy(module).double()
            expected, _ = results(exact.fusegen_reference, exact, [x.double() for x in given], grad)
            for mine, theirs in zip(found, expected, strict=True):
                assert mine.shape == theirs.shape and mine.dtype == dtype
                torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=unit * max(1, float(theirs.abs().max())))


@pytest.mark.parametrize("name", SPECS)
def test_no_gradient_of_full_size_for_them(built, name) -> None:
    """The op gives rows of samples, and nothing is summed behind it; the same bits come twice."""
    module, inputs = prepared(built, name, SIZES[name][0])
    with Calls() as calls:
        found, grad = results(module, module, inputs)
    other = copy.deepcopy(module)
    again, _ = results(other, other, inputs, grad)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    backward, count = calls.ours[-1], inputs[0].shape[0]
    channels = grad.shape[1] if grad.dim() == 4 else grad.shape[-1]
    assert backward.count((count, channels)) >= 2
    full = [shape for shape in backward if len(shape) > 1 and torch.Size(shape).numel() == grad.numel()]
    assert len(full) <= {"sums_by_rows": 3, "sums_in_one_pass": 2, "sums_behind_columns": 6}[name]


@pytest.mark.parametrize("wanted", [[1], [2], [0, 2]], ids=str)
def test_those_that_are_wanted(built, wanted) -> None:
    module, inputs = prepared(built, "sums_by_rows", SIZES["sums_by_rows"][0])
    (_, *every), grad = results(module, module, inputs)
    leaves = [x.clone().requires_grad_(index in wanted) for index, x in enumerate(inputs)]
    found = torch.autograd.grad(module(*leaves), [leaves[index] for index in wanted], grad)
    assert all(torch.equal(a, every[index]) for a, index in zip(found, wanted, strict=True))


class Kept(TorchDispatchMode):
    """Keeps the last call of one of fusegen's ops."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "fusegen":
            self.call = func, args
        return func(*args, **(kwargs or {}))


def test_other_numbers_of_samples_are_refused(built) -> None:
    module, inputs = prepared(built, "sums_by_rows", SIZES["sums_by_rows"][0])
    with Kept() as kept:
        results(module, module, inputs)
    op, arguments = kept.call
    names = [each.name for each in op._schema.arguments]
    for name, value, message in (
        ("_shift_rows", 1, "scale_rows: expected 1 to 1, got 3"),
        ("_shift_rows", 4, "shift_rows: expected a divisor of 210, got 4"),
    ):
        changed = list(arguments)
        changed[names.index(name)] = value
        with pytest.raises(RuntimeError, match=message):
            op(*changed)
