"""The comparison accepts the originals themselves and catches modules that are wrong in one place."""

from __future__ import annotations

import copy
import math

import pytest

torch = pytest.importorskip("torch")

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from fusegen.verify.judgement.policy import Error, bound, compare, error, table  # noqa: E402
from fusegen.verify.references.reference import reference  # noqa: E402
from tests.chains.originals import CHAINS, GemmScaleBn, MatmulBnBiasDivSwish  # noqa: E402

pytestmark = pytest.mark.torch
ROWS, IN, OUT, GROUPS = 33, 24, 32, 4


def _original(name="matmul_bn_bias_div_swish", dtype=torch.float32):
    torch.manual_seed(7)
    chain = CHAINS[name]
    module = chain.module(*chain.arguments(IN, OUT, GROUPS)).to(dtype)
    return module, torch.randn(ROWS, IN, dtype=dtype, requires_grad=True)


def _failed(results):
    return {item.name for item in results if not item.ok}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("dtype", "autocast"),
    [
        (torch.float32, None),
        (torch.bfloat16, None),
        (torch.float16, None),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
    ],
)
def test_original_passes_against_itself(name, train, dtype, autocast):
    original, x = _original(name, dtype)
    results = compare_module(copy.deepcopy(original), original, [x], autocast_dtype=autocast, train=train)
    assert not _failed(results), table(results)
    assert len(results) >= 2 + len(list(original.parameters()))


@pytest.mark.parametrize("name", CHAINS)
def test_steps_of_the_original_pass(name):
    original, x = _original(name)
    xs = [[torch.randn_like(x)] for _ in range(3)]
    results = compare_steps(copy.deepcopy(original), original, xs)
    assert not _failed(results), table(results)
    assert {item.name[:6] for item in results} == {"step 1", "step 2", "step 3"}


def test_a_second_summation_order_passes():
    """The bound is no test for equality: rows in another order round otherwise and have to be accepted."""
    original, x = _original("gemm_scale_bn")
    results = compare_module(_Permuted(original), _Plain(original), [x])
    assert not _failed(results), table(results)
    assert any(item.fused != item.eager for item in results)


class _Plain(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = copy.deepcopy(inner)

    def forward(self, x):
        return self.inner(x)


class _Permuted(_Plain):
    def forward(self, x):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
        return self.inner(x[order])[torch.argsort(order)]


class _BiasedNormalisation(MatmulBnBiasDivSwish):
    """Normalises with the unbiased variance, which belongs in the running statistics only."""

    def forward(self, x):
        z = self.matmul(x)
        self.bn(z)
        z = (z - z.mean(0)) * torch.rsqrt(z.var(0) + self.bn.eps) * self.bn.weight + self.bn.bias
        return torch.nn.functional.silu((z + self.bias) / self.divide_value)


class _NoRunningStatistics(MatmulBnBiasDivSwish):
    def normalise(self, z):
        return torch.nn.functional.batch_norm(z, None, None, self.bn.weight, self.bn.bias, True, 0.1, self.bn.eps)

    def forward(self, x):
        y = self.normalise(self.matmul(x))
        return torch.nn.functional.silu((y + self.bias) / self.divide_value)


class _BiasedRunningVariance(_NoRunningStatistics):
    def normalise(self, z):
        with torch.no_grad():
            self.bn.num_batches_tracked += 1
            self.bn.running_mean.lerp_(z.mean(0), self.bn.momentum)
            self.bn.running_var.lerp_(z.var(0, correction=0), self.bn.momentum)
        return super().normalise(z)


class _StatisticsWithoutGradient(MatmulBnBiasDivSwish):
    """The gradient forgets that mean and variance depend on the input."""

    def forward(self, x):
        z = self.matmul(x)
        self.bn(z)
        mean, variance = z.mean(0).detach(), z.var(0, correction=0).detach()
        z = (z - mean) * torch.rsqrt(variance + self.bn.eps) * self.bn.weight + self.bn.bias
        return torch.nn.functional.silu((z + self.bias) / self.divide_value)


class _BiasDropped(MatmulBnBiasDivSwish):
    def forward(self, x):
        y = self.bn(self.matmul(x)) + self.bias.detach()
        return torch.nn.functional.silu(y / self.divide_value)


class _BiasZero(MatmulBnBiasDivSwish):
    def forward(self, x):
        y = self.bn(self.matmul(x)) + self.bias.detach() + 0.0 * self.bias
        return torch.nn.functional.silu(y / self.divide_value)


class _SecondBatchCount(MatmulBnBiasDivSwish):
    def forward(self, x):
        self.bn.num_batches_tracked += 1
        return super().forward(x)


class _WrongDtype(MatmulBnBiasDivSwish):
    def forward(self, x):
        return super().forward(x).double()


class _OneElement(MatmulBnBiasDivSwish):
    """One element of the output is off by a few parts in ten thousand of the largest: the norm does not see
    it."""

    def forward(self, x):
        y = super().forward(x)
        wrong = torch.zeros_like(y)
        wrong[-1, -1] = 1e-3 * y.detach().abs().max()
        return y + wrong


class _NaN(MatmulBnBiasDivSwish):
    def forward(self, x):
        y = super().forward(x)
        return torch.where(torch.arange(y.numel()).view_as(y) == 5, math.nan, y)


@pytest.mark.parametrize(
    ("wrong", "caught"),
    [
        (_BiasedNormalisation, {"output", "grad bn.weight", "grad input", "grad matmul.weight"}),
        (_BiasedRunningVariance, {"bn.running_var"}),
        (_NoRunningStatistics, {"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}),
        (_StatisticsWithoutGradient, {"grad input", "grad matmul.weight", "grad matmul.bias"}),
        (_BiasDropped, {"dtypes and shapes"}),
        (_BiasZero, {"grad bias"}),
        (_SecondBatchCount, {"bn.num_batches_tracked"}),
        (_WrongDtype, {"dtypes and shapes"}),
        (_OneElement, {"output"}),
        (_NaN, {"output"}),
    ],
)
def test_wrong_module_is_caught(wrong, caught):
    original, x = _original()
    fused = wrong(IN, OUT)
    fused.load_state_dict(original.state_dict())
    failed = _failed(compare_module(fused, original, [x]))
    assert caught <= failed


@pytest.mark.parametrize("wrong", [_BiasedNormalisation, _BiasedRunningVariance, _NoRunningStatistics, _BiasZero])
def test_wrong_module_is_caught_by_steps(wrong):
    original, x = _original()
    fused = wrong(IN, OUT)
    fused.load_state_dict(original.state_dict())
    assert _failed(compare_steps(fused, original, [[x.detach()]] * 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_wrong_gradient_is_caught_in_half_precision(dtype):
    original, x = _original(dtype=dtype)
    fused = _StatisticsWithoutGradient(IN, OUT).to(dtype)
    fused.load_state_dict(original.state_dict())
    assert "grad input" in _failed(compare_module(fused, original, [x]))


def test_state_is_left_as_it_was():
    original, x = _original()
    before = copy.deepcopy(original.state_dict())
    compare_module(copy.deepcopy(original), original, [x])
    assert all(torch.equal(before[k], v) for k, v in original.state_dict().items())
    assert original.training and all(p.grad is None for p in original.parameters()) and x.grad is None


def test_other_state_is_refused():
    original, x = _original()
    other = MatmulBnBiasDivSwish(IN, OUT)
    assert _failed(compare_module(other, original, [x])) == {"state_dict"}


def test_frozen_parameters_have_no_gradient_in_either():
    original, x = _original()
    fused = copy.deepcopy(original)
    for module in (fused, original):
        module.matmul.requires_grad_(False)
    assert not _failed(compare_module(fused, original, [x.detach()]))
    fused.matmul.weight.requires_grad_(True)
    assert _failed(compare_module(fused, original, [x.detach()])) == {"dtypes and shapes"}


def test_both_have_to_raise():
    original, x = _original()
    results = compare_module(copy.deepcopy(original), original, [x[:1].detach()])
    assert [(r.name, r.ok) for r in results] == [("raises ValueError", True)]
    fused = _StatisticsWithoutGradient(IN, OUT)
    fused.bn = torch.nn.Identity()
    results = compare_module(_StillRuns(original), _Plain(original), [x[:1].detach()])
    assert [(r.name, r.ok) for r in results] == [("raises ValueError", False)]


class _StillRuns(_Plain):
    def forward(self, x):
        return self.inner.matmul(x)


def test_zero_gradients_are_measured_by_their_terms():
    """The gradient of a bias in front of a batch norm is zero: its noise is relative to what cancels."""
    original, x = _original("gemm_scale_bn")
    exact = reference(original, [x], torch.randn(ROWS, OUT))
    assert float(exact.run.gradients["gemm.bias"].abs().max()) < 1e-12
    assert float(exact.terms["gemm.bias"].min()) > 1e-2
    for name in ("gemm.weight", "bn.weight", "bn.bias", "input"):
        ratio = exact.terms[name].norm() / exact.run.gradients[name].norm()
        assert 0.3 < ratio < 5, (name, ratio)


def test_two_rows_of_a_batch_norm_cancel_everywhere():
    torch.manual_seed(0)
    original, x = GemmScaleBn(IN, OUT, (OUT,)), torch.randn(2, IN, requires_grad=True)
    results = compare_module(_Permuted(original), _Plain(original), [x])
    assert not _failed(results), table(results)


def test_error_and_bound():
    exact = torch.tensor([1.0, -2.0, 0.0], dtype=torch.float64)
    measured = error(torch.tensor([1.0, -2.0, 0.5]), exact)
    assert measured.largest == 0.25 and measured.norm == pytest.approx(0.5 / math.sqrt(5))
    assert error(torch.tensor([1.0, math.nan, 0.0]), exact).largest == math.inf
    assert error(torch.zeros(3), torch.zeros(3, dtype=torch.float64)) == Error(0.0, 0.0)
    assert error(torch.full((3,), 1e-7), torch.zeros(3).double(), torch.tensor(10.0)).largest < 2e-8
    assert error(torch.zeros(2), exact).largest == math.inf
    short, long = (bound(Error(0.0, 0.0), torch.bfloat16, n).largest for n in (1, 10_000))
    assert long < 1.01 * short < 0.01
    assert bound(Error(0.0, 0.0), torch.float32, 10_000).largest > 50 * bound(Error(0.0, 0.0), torch.float32, 1).norm


def test_special_values_have_to_stand_where_eager_has_them():
    exact = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    eager = torch.tensor([1.0, math.inf, 3.0])
    arguments = {"dtype": torch.float32, "reduction_length": 1}
    assert compare("a", eager.clone(), eager, exact, **arguments).ok
    for wrong in ([1.0, 2.0, 3.0], [1.0, -math.inf, 3.0], [1.0, math.nan, 3.0], [math.inf, math.inf, 3.0]):
        assert not compare("a", torch.tensor(wrong), eager, exact, **arguments).ok


def test_the_terms_of_a_learnt_slope():
    """PReLU takes no weight for each element: the reference computes it by its formula."""
    module = torch.nn.Sequential(torch.nn.PReLU(4, init=0.3), torch.nn.PReLU(init=-0.5)).double()
    x, grad = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    found = reference(module, [x.requires_grad_()], grad)
    module(x).backward(grad)
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(found.run.gradients[name], parameter.grad)
        assert found.terms[name].shape == parameter.shape and (found.terms[name] >= 0).all()
    assert "forward" not in module[0].__dict__
