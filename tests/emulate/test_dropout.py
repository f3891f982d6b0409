"""Modules with dropout, as users have them: what they draw, and when they do."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """\
fusegen: 1
name: drops
dims: {batch: 64, width: 64}
arguments: {p: {type: float}, share: {type: float}}
inputs: {x: [batch, width], residual: [batch, width]}
dtypes: [float32]
chain:
  - {op: dropout, name: drop, p: p}
  - {op: drop_path, name: path, p: share}
  - {op: add, input: residual}
"""
FROZEN = """\
fusegen: 1
name: frozen_drops
dims: {batch: 64, width: 64}
arguments: {width: {type: dim}}
inputs: {x: [batch, width]}
dtypes: [float32]
chain:
  - {op: batch_norm, name: norm}
  - {op: dropout}
"""
CONVOLVED = """\
fusegen: 1
name: conv_drops
dims: {batch: 64, a: 8, b: 8}
inputs: {x: [batch, 3, a, b]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: 6, kernel_size: 1}
  - {op: dropout, name: drop, p: 0.5}
  - {op: drop_path, name: path, p: 0.5}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory, emulation_cache):
    root, known = tmp_path_factory.mktemp("drops"), {}

    def find(text: str):
        if text not in known:
            plan = write(text.split()[3], text, root)
            package = emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)
            known[text] = getattr(package, plan.spec.class_name)
        return known[text]

    return find


@pytest.fixture
def module(made) -> nn.Module:
    found = made(SPEC)(0.25, 0.5)
    found.fusegen_strict = True
    return found


def inputs(*sizes: int):
    return [torch.randn(*sizes, requires_grad=True) for _ in range(2)]


def drawn(module: nn.Module, shape, seed: int):
    """The factors of a call after torch.manual_seed(seed)."""
    torch.manual_seed(seed)
    number = module.fusegen_seed("cpu")
    factors = [module.fusegen_factors(name, number, shape) for name in ("drop", "path")]
    return factors[0] * factors[1]


@pytest.mark.parametrize("sizes", [(6, 12), (4, 5, 12), (3, 2, 2, 7)], ids=str)
def test_result_and_gradients_are_those_of_the_factors(sizes, module) -> None:
    x, residual = inputs(*sizes)
    factors = drawn(module, x.shape, 3).float()
    torch.manual_seed(3)
    result = module(x, residual)
    assert torch.equal(result, x * factors + residual)
    grad = torch.randn_like(result)
    result.backward(grad)
    assert torch.equal(x.grad, grad * factors)
    assert torch.equal(residual.grad, grad)
    assert 0 < (factors == 0).double().mean() < 1
    by_sample = module.fusegen_factors("path", module.fusegen_seed("cpu"), x.shape)
    assert by_sample.shape == (sizes[0], *(1,) * (len(sizes) - 1))


def test_torchs_generator_decides(module) -> None:
    x, residual = inputs(40, 12)
    torch.manual_seed(1)
    first, second = module(x, residual), module(x, residual)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(module(x, residual), first)
    with torch.random.fork_rng(devices=[]):
        inner = module(x, residual)
    assert torch.equal(inner, second)
    assert torch.equal(module(x, residual), second)


def test_two_dropouts_of_a_chain_draw_other_numbers(module) -> None:
    number = module.fusegen_seed("cpu")
    drops = module.fusegen_factors("drop", number, (1000,))
    paths = module.fusegen_factors("path", number, (1000, 1)).flatten()
    module.drop.p = 0.5
    assert not torch.equal(module.fusegen_factors("drop", number, (1000,)) == 0, paths == 0)
    assert (drops == 0).sum() != (paths == 0).sum()


def test_checkpoints_draw_the_same_again(module) -> None:
    x, residual = inputs(40, 12)
    factors = drawn(module, x.shape, 5).float()
    torch.manual_seed(5)
    result = checkpoint(module, x, residual, use_reentrant=False)
    torch.manual_seed(8)
    result.sum().backward()
    assert torch.equal(x.grad, factors)


def test_evaluation_draws_nothing(module) -> None:
    x, residual = inputs(40, 12)
    state = torch.get_rng_state()
    module.eval()
    assert torch.equal(module(x, residual), x + residual)
    module.train()
    module.drop.p = module.path.p = 0.0
    assert torch.equal(module(x, residual), x + residual)
    assert torch.equal(torch.get_rng_state(), state)
    module.drop.p = 0.5
    assert module.fusegen_kernels(x, residual)
    assert torch.equal(torch.get_rng_state(), state), "a question is no call"
    assert not torch.equal(module(x, residual), x + residual)


def test_p_and_training_are_those_of_the_submodule(module) -> None:
    x, residual = torch.ones(40, 12), torch.zeros(40, 12)
    module.eval()
    module.drop.train()
    module.drop.p = 0.75
    result = module(x, residual)
    assert set(result.unique().tolist()) == {0.0, 4.0}
    module.drop.p = 1.0
    assert torch.equal(module(x, residual), torch.zeros(40, 12))
    module.drop.eval()
    module.path.train()
    result = module(x, residual)
    assert set(result.unique().tolist()) == {0.0, 2.0} and (result == result[:, :1]).all()


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_what_is_dropped_of_infinities_is_nan(p: float, module) -> None:
    """As in PyTorch, which multiplies with 0."""
    module.drop.p, module.path.p = p, 0.0
    x = torch.full((40, 12), torch.inf)
    factors = drawn(module, x.shape, 2)
    torch.manual_seed(2)
    result = module(x, torch.zeros(40, 12))
    assert torch.equal(result.isnan(), factors == 0)
    assert torch.equal(result.isinf(), factors != 0)
    finite = torch.ones(40, 12, requires_grad=True)
    module(finite, torch.zeros(40, 12)).sum().backward()
    assert finite.grad.isfinite().all()


def test_what_pytorch_refuses(module) -> None:
    module.fusegen_strict = False
    x, residual = inputs(4, 12)
    module.drop.p = 1.5
    with pytest.raises(ValueError, match="between 0 and 1"):
        module(x, residual)
    module.drop.p = torch.tensor(0.5)
    with pytest.warns(UserWarning, match="is a Tensor, not a number"):
        module(x, residual)
    module.drop.p = 0.5
    with pytest.raises(ValueError, match="drop_path draws for each index of the first dimension"):
        module(*inputs(12))
    with pytest.raises(ValueError, match="between 0 and 1"):
        type(module)(0.5, -0.1)


def test_a_dropout_with_a_call_of_its_own_is_called(module) -> None:
    module.fusegen_strict = False
    module.drop = nn.AlphaDropout()
    with pytest.warns(UserWarning, match="drop is of type AlphaDropout, not Dropout"):
        module(*inputs(4, 12))


def test_elsewhere_pytorchs_operators_run(module) -> None:
    """In float64, for which there are no kernels here: nn.Dropout itself, and stochastic depth."""
    module.fusegen_strict = False
    x, residual = (torch.ones(400, 3, 5).double() for _ in range(2))
    with pytest.warns(UserWarning, match="no kernel for torch.float64|no kernel"):
        result = module(x, residual) - 1
    kept = (result != 0).double()
    assert set(result.unique().tolist()) == {0.0, 1 / 0.75 / 0.5}
    alive = kept.flatten(1).any(1)
    assert 120 < alive.sum() < 280
    assert abs(kept[alive].mean().item() - 0.75) < 0.05


def test_batch_norms_in_evaluation(made) -> None:
    module = made(FROZEN)(12)
    x = torch.randn(20, 12)
    module.norm.eval()
    assert module.fusegen_kernels(x).reason == "a dropout is in training, and the batch norms are in evaluation"
    module.dropout.eval()
    assert module.fusegen_kernels(x)
    torch.testing.assert_close(module(x), module.norm(x))
    module.norm.train()
    exact = copy.deepcopy(module)
    assert module.fusegen_kernels(x)
    torch.testing.assert_close(module(x), exact.norm(x))
    module.dropout.train()
    torch.manual_seed(1)
    result, expected = module(x), exact.norm(x)
    torch.manual_seed(1)
    factors = module.fusegen_factors("dropout", module.fusegen_seed("cpu"), x.shape)
    torch.testing.assert_close(result, expected * factors.float())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_behind_a_convolution(memory_format, made) -> None:
    """Elements are numbered with the channels as the innermost dimension, whatever the memory format is."""
    module = made(CONVOLVED)()
    module.fusegen_strict = True
    x = torch.randn(4, 3, 2, 5).to(memory_format=memory_format)
    torch.manual_seed(4)
    result = module(x)
    factors = drawn(module, result.shape, 4)
    torch.testing.assert_close(result, module.conv(x) * factors.float())
    assert factors.shape == (4, 6, 2, 5) and 0 < (factors == 0).double().mean() < 1
    dropped = (factors == 0).flatten(1).all(1)
    assert dropped.any() or (module.fusegen_factors("path", torch.tensor(1), result.shape) >= 0).all()


def test_no_warnings_in_a_plain_call(module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(*inputs(4, 12))
