"""The sizes of the terms of an input's gradient, where a product takes a view of it, or where it is broadcast."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.verify.references.reference import reference  # noqa: E402


class _OfView(nn.Module):
    def __init__(self, view) -> None:
        super().__init__()
        self.view, self.weight = view, nn.Parameter(torch.randn(4, 3))

    def forward(self, x):
        return self.view(x) @ self.weight


@pytest.mark.parametrize(
    "shape, view",
    [
        ((5, 4), lambda x: x),
        ((4, 5), lambda x: x.mT),
        ((5, 8), lambda x: x.chunk(2, -1)[1]),
        ((5, 12), lambda x: x[:, 2:10:2]),
    ],
)
def test_terms_have_the_inputs_shape(shape, view) -> None:
    torch.manual_seed(0)
    module, x = _OfView(view), torch.randn(shape, requires_grad=True)
    grad = torch.randn(5, 3)
    terms = reference(module, [x], grad).terms["input"]
    assert terms.shape == x.shape
    expected = (grad.double().square() @ module.weight.detach().double().square().T).sqrt()
    assert torch.allclose(view(terms), expected)
    assert int((terms == 0).sum()) == x.numel() - expected.numel()


class _Bounded(nn.Module):
    def __init__(self, norm) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x, bound):
        return self.norm(torch.minimum(x, bound) * 2)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (6,), (1, 6), (5, 1)])
def test_terms_of_an_input_that_is_broadcast(shape) -> None:
    torch.manual_seed(0)
    x, bound, grad = torch.randn(5, 6), torch.randn(shape, requires_grad=True), torch.randn(5, 6)
    found = reference(_Bounded(nn.Identity()), [x, bound], grad)
    each = torch.where(x < bound.detach(), 0.0, 2 * grad).double()
    assert torch.allclose(found.run.gradients["input 2"], each.sum_to_size(shape))
    assert torch.allclose(found.terms["input 2"], each.square().sum_to_size(shape).sqrt())


def test_terms_that_a_norm_cancels() -> None:
    """All values of a row are the bound: nothing but noise is left of the bound's gradient."""
    bound = torch.full((1,), -9.0, requires_grad=True)
    found = reference(_Bounded(nn.LayerNorm(6, elementwise_affine=False)), [torch.randn(5, 6), bound], torch.ones(5, 6))
    assert found.run.gradients["input 2"].abs() < 1e-9 and found.terms["input 2"] > 100
