"""Norms over the positions of each image, contiguous and in channels_last: kernels beside torch.nn's own layers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from fusegen.verify.runs.run import run  # noqa: E402
from tests.emulate.image_chains import (  # noqa: E402
    BEHAVIOUR,
    SIZES,
    Chain,
    Packages,
    Sources,
    behaves,
    failures,
    is_right_in_16_bits,
)

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


def normed_rows(m, x):
    return m.rows(F.mish(m.norm(x)).movedim(1, -1)).movedim(-1, 1)


CHAINS = {
    "groups": Chain(  # an input has one row for each sample, whose gradient is a sum of samples besides
        2, ("group_norm, name: norm, num_groups: 8", "mul, input: gate, plus: 1", "silu"),
        lambda c: {"norm": nn.GroupNorm(8, c)}, lambda m, x, gate: F.silu(m.norm(x) * (gate + 1)),
        ("gate: [n, c, 1, 1]",), dtypes="float32, bfloat16",
    ),
    "one_group": Chain(  # then moments of columns, and a parameter of channels
        1, ("gelu", "group_norm, name: norm, num_groups: 1", "mul, parameter: scale, shape: [c, 1], init: randn",
            "batch_norm, name: bn"),
        lambda c: {"scale": nn.Parameter(torch.randn(c, 1)), "norm": nn.GroupNorm(1, c), "bn": nn.BatchNorm1d(c)},
        lambda m, x: m.bn(m.norm(F.gelu(x)) * m.scale),
    ),
    "instances": Chain(
        3, ("instance_norm, name: norm, affine: true, eps: 0.001", "leaky_relu",
            "mul, parameter: gamma, shape: [c], init: randn, dim: 1", "add, input: y"),
        lambda c: {"gamma": nn.Parameter(torch.randn(c)), "norm": nn.InstanceNorm3d(c, affine=True, eps=0.001)},
        lambda m, x, y: F.leaky_relu(m.norm(x)) * m.gamma[:, None, None, None] + y, ("y: [n, c, ...]",),
    ),
    "twice": Chain(  # two norms of one number of groups, one of them behind a value that is taken again
        2, ("group_norm, name: norm, num_groups: 4, affine: false", "tanh, save: v",
            "group_norm, name: other, num_groups: 4", "mul, parameter: p, shape: [1], init: randn", "add, value: v"),
        lambda c: {"p": nn.Parameter(torch.randn(1)), "norm": nn.GroupNorm(4, c, affine=False),
                   "other": nn.GroupNorm(4, c)},
        lambda m, x: m.other(torch.tanh(m.norm(x))) * m.p + torch.tanh(m.norm(x)),
    ),
    "rows": Chain(  # rows are reduced behind the norm, and an input has one value for each
        2, ("group_norm, name: norm, num_groups: 2", "mish", "layer_norm, name: rows, dim: 1", "mul, input: mask_of"),
        lambda c: {"norm": nn.GroupNorm(2, c), "rows": nn.LayerNorm(c)},
        lambda m, x, mask_of: normed_rows(m, x) * mask_of, ("mask_of: [n, 1, ...]",), has_contiguous_layout=False,
    ),
}  # fmt: skip
GROUPS = {"groups": 8, "one_group": 1, "instances": 1, "twice": 4, "rows": 2}


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    return Packages(CHAINS, tmp_path_factory.mktemp("norms"), emulation_cache, checked=True)


CASES = [
    (name, size)
    for name in CHAINS
    for size, (_, channels, positions) in SIZES.items()
    if channels % GROUPS[name] == 0 and (name != "instances" or (max(positions) > 1 and channels > 1))
]


@pytest.mark.parametrize(("name", "size"), CASES)
def test_as_accurate_as_eager(packages, name, size) -> None:
    """Results and all gradients, in both memory formats, which the result keeps."""
    for fused, original, inputs, last, train in packages.calls(name, size):
        assert not failures(compare_module(fused, original, inputs, train=train))
        assert fused.train(train).fusegen_kernels(*inputs)
        theirs, mine = (run(module, inputs, None, train=train).output for module in (original, fused))
        if last and 1 not in theirs.shape:
            assert mine.stride() == inputs[0].stride()


def test_in_16_bits_and_under_autocast(packages) -> None:
    assert is_right_in_16_bits(packages, "groups")


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_contiguous_is_not_copied(packages, name) -> None:
    fused, _ = packages.pair(name)
    inputs = packages.drawn(name)
    with Sources() as sources:
        fused(*inputs)
    assert (sources.seen[0].data_ptr() == inputs[0].data_ptr()) == CHAINS[name].has_contiguous_layout


@pytest.mark.parametrize("name", ["groups", "instances", "twice"])
@BEHAVIOUR
def test_behaviour(packages, name, check) -> None:
    assert behaves(packages, name, check)


def test_training(packages) -> None:
    fused, original = packages.pair("groups")
    batches = [[torch.randn_like(x) for x in packages.drawn("groups")] for _ in range(3)]
    assert not failures(compare_steps(fused, original, batches))


@pytest.mark.parametrize(("name", "shape"), [("groups", (1, 8, 1, 1)), ("instances", (2, 24, 1, 1, 1))])
def test_what_has_no_variance_is_refused_as_pytorch_refuses_it(packages, name, shape) -> None:
    fused, original = packages.pair(name, shape[1])
    others = [torch.randn(*shape[:2], *(1,) * (len(shape) - 2)) for _ in CHAINS[name].inputs]
    fused.fusegen_strict = False
    for module in (original, fused):
        with pytest.raises(ValueError, match="Expected more than 1"):
            module(torch.randn(shape), *others)


def test_bits_do_not_depend_on_where_tensors_begin(packages) -> None:
    fused, _ = packages.pair("groups", 32)
    x, gate = (each.detach() for each in packages.drawn("groups", "whole vectors"))
    grad, found = torch.randn(x.shape), []
    for given in (x, torch.empty(x.numel() + 1)[1:].view(x.shape).copy_(x)):
        leaves = [given.requires_grad_(), gate.requires_grad_()]
        y = fused(*leaves)
        found.append([y, *torch.autograd.grad(y, [*leaves, *fused.parameters()], grad)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
