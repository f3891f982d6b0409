"""The sizes of the terms of an input's gradient, where a product takes a view of the input."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.verify.reference import reference  # noqa: E402


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
