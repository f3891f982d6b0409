"""Exported files in which the kernels run on the CPU: results, gradients and state beside the original's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.chains.originals import CHAINS  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TAIL = """\
fusegen: 1
name: tail
dims: {batch: 4, features: 24}
arguments:
  features: {type: dim}
  scale_by: {type: float, default: 1.25}
inputs: {x: [batch, features], shift: [batch, features], residual: [batch, features]}
dtypes: [float32]
chain:
  - {op: add, input: shift}
  - {op: rms_norm, name: norm, eps: null}
  - {op: mul, constant: scale_by}
  - {op: prelu, name: act}
  - {op: add, input: residual}
"""


class Tail(nn.Module):
    def __init__(self, features: int, scale_by: float = 1.25) -> None:
        super().__init__()
        self.norm, self.act, self.scale_by = nn.RMSNorm(features), nn.PReLU(), scale_by

    def forward(self, x: torch.Tensor, shift: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.act(self.norm(x + shift) * self.scale_by) + residual


class Geglu(nn.Module):
    def __init__(self, in_features: int, hidden: int) -> None:
        super().__init__()
        self.proj = nn.Linear(in_features, 2 * hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.proj(x).chunk(2, dim=-1)
        return value * nn.functional.gelu(gate)


@pytest.fixture(scope="module")
def files(emulated, tmp_path_factory) -> list[dict[str, Any]]:
    spec = tmp_path_factory.mktemp("spec") / "tail.yaml"
    spec.write_text(TAIL)
    specs = ROOT / "specs"
    return emulated.run(
        (specs / "matmul_bn_bias_div_swish.yaml", "fp32_split"), (spec, None), (specs / "geglu.yaml", None)
    )


@pytest.fixture
def linear(files) -> dict[str, Any]:
    """Products of both precisions, of which the file itself takes PyTorch's where there is no GPU."""
    return files[0]


@pytest.fixture
def tail(files) -> dict[str, Any]:
    return files[1]


def pair(names: dict[str, Any], original: type[nn.Module], *arguments: Any) -> tuple[nn.Module, nn.Module]:
    """The original and the export, from one seed."""
    made = []
    for kind in (original, names["ModelNew"]):
        torch.manual_seed(7)
        made.append(kind(*arguments))
    return made[0], made[1]


def compare(original: nn.Module, exported: nn.Module, *inputs: torch.Tensor) -> None:
    """Results, gradients of everything, and buffers after the call."""
    found = []
    for module in (original, exported):
        own = [each.clone().requires_grad_() for each in inputs]
        y = module(*own)
        torch.manual_seed(1)
        y.backward(torch.randn(y.shape))
        found.append([y, *(each.grad for each in own), *(p.grad for p in module.parameters()), *module.buffers()])
        module.zero_grad()
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)


def test_the_same_seed_gives_the_same_state(linear, tail) -> None:
    for made in (pair(linear, CHAINS["matmul_bn_bias_div_swish"].module, 12, 20), pair(tail, Tail, 24)):
        theirs, ours = (module.state_dict() for module in made)
        assert list(theirs) == list(ours)
        assert all(torch.equal(theirs[key], ours[key]) and theirs[key].dtype == ours[key].dtype for key in theirs)


@pytest.mark.parametrize("momentum", [0.1, None], ids=str)
def test_a_linear_layer_and_a_batch_norm(linear, momentum) -> None:
    original, exported = pair(linear, CHAINS["matmul_bn_bias_div_swish"].module, 12, 20, 1e-5, 0.1, (1,), 1.5)
    exported.load_state_dict(original.state_dict())
    original.bn.momentum = exported.bn.momentum = momentum
    for training in (True, True, False):
        compare(original.train(training), exported.train(training), torch.randn(9, 12))


def test_a_tail_with_leading_dimensions_and_further_inputs(tail) -> None:
    original, exported = pair(tail, Tail, 24, 0.75)
    for shape in ((24,), (5, 24), (2, 3, 24)):
        compare(original, exported, *(torch.randn(shape) for _ in range(3)))


@pytest.mark.parametrize("wanted", [(0, 1, 2), (1, 2), (1,), (2,)])
def test_gradients_that_are_others(wanted, tail) -> None:
    """That of the residual is the one that comes, and x and shift have one."""
    _, exported = pair(tail, Tail, 24)
    given = [torch.randn(5, 24, requires_grad=index in wanted) for index in range(3)]
    grad = torch.randn(5, 24)
    found = dict(zip(wanted, torch.autograd.grad(exported(*given), [given[i] for i in wanted], grad), strict=True))
    expected = torch.autograd.grad(Tail(24)(*given), [given[i] for i in wanted], grad)
    torch.testing.assert_close(list(found.values()), list(expected))
    assert 2 not in found or found[2].data_ptr() == grad.data_ptr()
    assert wanted[:2] != (0, 1) or found[0].data_ptr() == found[1].data_ptr()


def test_parts_of_the_channels(files) -> None:
    for hidden in (8, 7):
        compare(*pair(files[2], Geglu, 12, hidden), torch.randn(2, 3, 12))


def test_products_of_split_operands(linear) -> None:
    """By a kernel, and in evaluation with the rest of the chain in its epilogue."""
    original, exported = pair(linear, CHAINS["matmul_bn_bias_div_swish"].module, 48, 40)
    exported.load_state_dict(original.state_dict())
    exported._fusegen_split_always = True
    for training in (True, False):
        compare(original.train(training), exported.train(training), torch.randn(33, 48))


def test_gradients_that_nobody_wants(linear) -> None:
    original, exported = pair(linear, CHAINS["matmul_bn_bias_div_swish"].module, 12, 20)
    x = torch.randn(6, 12)
    for module in (original, exported):
        module.matmul.weight.requires_grad_(False)
        module.bias.requires_grad_(False)
        module(x).sum().backward()
    for ours, theirs in zip(exported.parameters(), original.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
    torch.testing.assert_close(exported.bn.weight.grad, original.bn.weight.grad, atol=1e-5, rtol=1e-5)


def test_a_call_without_gradients_saves_nothing(linear) -> None:
    _, exported = pair(linear, CHAINS["matmul_bn_bias_div_swish"].module, 12, 20)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(packed.append, lambda each: each):
        with torch.no_grad():
            assert exported(torch.randn(6, 12)).grad_fn is None
        assert not packed
        exported.requires_grad_(False)
        assert exported(torch.randn(6, 12)).grad_fn is None
        assert not packed
        exported(torch.randn(6, 12).requires_grad_())
        assert packed


def test_a_backward_pass_notices_that_running_statistics_moved(linear) -> None:
    _, exported = pair(linear, CHAINS["matmul_bn_bias_div_swish"].module, 12, 20)
    y = exported.eval()(torch.randn(6, 12))
    exported.train()(torch.randn(6, 12))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_second_derivatives_are_refused(linear) -> None:
    _, exported = pair(linear, CHAINS["matmul_bn_bias_div_swish"].module, 12, 20)
    x = torch.randn(6, 12, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(exported(x).sum(), x, create_graph=True)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda module, x: (module, x[:, :-1]), ValueError, r"x must be \[\*, 12\], got \[6, 11\]"),
        (lambda module, x: (module, x.double()), ValueError, "no kernel for float64 with float32"),
        (lambda module, x: (module, x[0]), ValueError, r"inputs must be \[rows, channels\], got \[12\]"),
        (lambda module, x: (module, x[:0]), ValueError, "there are no rows"),
        (lambda module, x: (module, x[:1]), ValueError, "more than one row"),
        (lambda module, x: (module, x.to("meta")), RuntimeError, "expected device"),
        (lambda module, x: (setattr(module, "divide_value", 0.0) or module, x), ValueError, "too large or too small"),
        (lambda module, x: (setattr(module, "divide_value", "2") or module, x), ValueError, "is a str, not a number"),
        (lambda module, x: (setattr(module.bn, "eps", 0.0) or module, x), ValueError, "eps <= 0"),
        (lambda module, x: (setattr(module.bn, "momentum", -0.5) or module, x), ValueError, "negative momentum"),
    ],
)
def test_what_the_kernels_do_not_do_is_refused(linear, change, error, text) -> None:
    _, exported = pair(linear, CHAINS["matmul_bn_bias_div_swish"].module, 12, 20)
    before = copy.deepcopy(exported.state_dict())
    module, x = change(exported, torch.randn(6, 12))
    with pytest.raises(error, match=text):
        module(x)
    assert all(torch.equal(before[key], each) for key, each in exported.state_dict().items())


def test_shapes_that_do_not_fit_are_refused(linear, tail) -> None:
    with pytest.raises(ValueError, match=r"bias_shape must be \(1,\)"):
        linear["ModelNew"](12, 20, bias_shape=(20,))
    with pytest.raises(ValueError, match="as many dimensions each"):
        tail["ModelNew"](24)(torch.randn(2, 3, 24), *(torch.randn(6, 24),) * 2)
    with pytest.raises(ValueError, match=r"shift is .* \[2, 4, 24\]"):
        tail["ModelNew"](24)(torch.randn(2, 3, 24), *(torch.randn(2, 4, 24),) * 2)
    with pytest.raises(ValueError, match=r"inputs must be \[\.\.\., channels\]"):
        tail["ModelNew"](24)(torch.randn(24), *(torch.tensor(1.0),) * 2)
    with pytest.raises(ValueError, match=r"inputs must be \[\.\.\., channels\]"):
        tail["ModelNew"](24)(*(torch.tensor(1.0),) * 3)
