"""Products of two inputs in front of a chain, on the CPU: PyTorch's product, binding and kernels."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import sizes  # noqa: E402
from fusegen.verify.checks import behaviour, operators  # noqa: E402
from fusegen.verify.checks.batches import batches  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SCORES = """\
fusegen: 1
name: bmm_scores
dims: {batch: 4, queries: 16, keys: 24, width: 8}
arguments: {scale: {type: float, default: 0.5}}
inputs: {q: [batch, queries, width], k: [batch, keys, width], mask: [batch, queries, keys]}
dtypes: [float32, bfloat16]
chain:
  - {op: bmm, input: k, transposed: true}
  - {op: mul, constant: scale}
  - {op: add, input: mask}
  - {op: softmax}
"""
VALUES = """\
fusegen: 1
name: weighted_values
dims: {batch: 4, queries: 16, keys: 24, width: 8}
arguments: {width: {type: dim}}
inputs: {p: [batch, queries, keys], v: [batch, keys, width]}
dtypes: [float32]
chain:
  - {op: bmm, input: v}
  - {op: mul, parameter: gain, shape: [width], init: ones}
  - {op: rms_norm, name: norm}
"""
MODES = ("float32", "autocast bfloat16")
# Rows of the whole batch, features, channels.
SIZES = {"odd": (15, 7, 13, 1), "one row": (1, 16, 24, 1)}


class Scores(nn.Module):
    def __init__(self, scale=0.5):
        super().__init__()
        self.scale = scale

    def forward(self, q, k, mask):
        return torch.softmax(q @ k.transpose(-2, -1) * self.scale + mask, -1)


class WeightedValues(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain, self.norm = nn.Parameter(torch.ones(width)), nn.RMSNorm(width, eps=1e-5)

    def forward(self, p, v):
        return self.norm(torch.matmul(p, v) * self.gain)


@pytest.fixture(scope="module")
def subjects(tmp_path_factory, emulation_cache):
    root, found = tmp_path_factory.mktemp("bmm"), {}
    for name, text, original in (("bmm_scores", SCORES, Scores), ("weighted_values", VALUES, WeightedValues)):
        plan = write(name, text, root)
        package = emulate_package(root / name, cache=emulation_cache, checked=False)
        found[name] = Subject(module_of(plan), package, "cpu", original)
    return found


@pytest.fixture(params=["bmm_scores", "weighted_values"])
def subject(request, subjects):
    return subjects[request.param]


def pair(subject, size="odd", mode=0):
    fused, original, inputs = subject.pair(sizes(subject.plan.single, *SIZES[size]), subject.plan.modes[mode], 3)
    fused.fusegen_strict = True
    return fused, original, inputs


def failures(comparisons):
    return [item for item in comparisons if not item.ok]


@pytest.mark.parametrize("size", SIZES)
def test_numerics(subject, size) -> None:
    for mode, each in enumerate(subject.plan.modes):
        if each.name not in MODES:
            continue
        fused, original, inputs = pair(subject, size, mode)
        autocast = torch.bfloat16 if each.autocast and not each.plain else None
        found = compare_module(fused, original, inputs, autocast_dtype=autocast)
        assert {item.name for item in found} >= {"output", "grad input", "grad input 2"} and not failures(found)


def test_batches(subject) -> None:
    """Of several dimensions and of none: results, and gradients of both operands, the mask and parameters."""
    found = batches(*pair(subject))
    assert len(found) > 6 and not failures(found)


@pytest.mark.parametrize(
    "check",
    [behaviour.strides, behaviour.frozen, behaviour.inputs_untouched, operators.opcheck],
    ids=lambda c: c.__name__,
)
def test_behaviour(subject, check) -> None:
    assert not failures(check(*pair(subject)))


def test_torch_compile_without_graph_break(subjects) -> None:
    fused, _, inputs = pair(subjects["bmm_scores"])
    torch._dynamo.reset()
    compiled, results = torch.compile(copy.deepcopy(fused), fullgraph=True, backend="aot_eager"), []
    for call in (fused, compiled):
        y = call(*inputs)
        results.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*PyTorch's own operators run")
def test_what_is_left_to_pytorch_or_refused(subjects) -> None:
    fused, original, _ = pair(subjects["weighted_values"])
    fused.fusegen_strict = False
    p, v = torch.randn(3, 5, 7), torch.randn(1, 7, 13)
    assert "other leading dimensions" in fused.fusegen_kernels(p, v).reason
    torch.testing.assert_close(fused(p, v), original(p, v))
    with pytest.raises(ValueError, match=r"v must be \[..., 7, \*\], got \[3, 6, 13\]"):
        fused(p, torch.randn(3, 6, 13))
    with pytest.raises(ValueError, match=r"inputs must be \[..., rows, channels\]"):
        fused(torch.randn(7), torch.randn(7))
    assert not fused.fusegen_kernels(p, torch.randn(3, 7, 13, dtype=torch.bfloat16))
    scores, _, _ = pair(subjects["bmm_scores"])
    empty = torch.randn(3, 5, 7), torch.randn(3, 0, 7), torch.randn(3, 5, 0)
    assert "no elements" in scores.fusegen_kernels(*empty).reason


def test_strides_of_the_operands(subjects) -> None:
    """A head's slice of a projection, as attention has it, is copied by nobody but PyTorch."""
    fused, original, _ = pair(subjects["bmm_scores"])
    whole = torch.randn(2, 5, 3, 2, 8).permute(2, 3, 0, 1, 4)  # [which, heads, batch, rows, width] of one tensor
    q, k, mask = whole[0], whole[1], torch.randn(2, 2, 5, 5)
    torch.testing.assert_close(fused(q, k, mask), original(q, k, mask), rtol=1e-5, atol=1e-5)
