"""Each check of memory formats fails on a module that is wrong there; terms of a convolution's gradients are right."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.formats import memory_formats  # noqa: E402
from fusegen.verify.judgement.policy import compare  # noqa: E402
from fusegen.verify.references.reference import reference  # noqa: E402


class Right(nn.Module):
    """With the refusal of generated modules."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        if x.dim() not in (3, 4):
            raise ValueError("dimensions")
        return torch.tanh(self.conv(x))


class AlwaysContiguous(Right):
    def forward(self, x):
        return super().forward(x).contiguous()


class AlwaysLast(Right):
    def forward(self, x):
        y = super().forward(x)
        return y.contiguous(memory_format=torch.channels_last) if y.dim() == 4 else y


class Lenient(Right):
    def forward(self, x):
        return super().forward(x.flatten(0, -4) if x.dim() > 4 else x)


class WithoutBatchWrong(Right):
    def forward(self, x):
        y = super().forward(x)
        return y if x.dim() == 4 else 2 * y


class NeedsBatch(Right):
    def forward(self, x):
        if x.dim() == 3:
            raise ValueError("a batch")
        return super().forward(x)


class WrongInChannelsLast(Right):
    def forward(self, x):
        y = super().forward(x)
        return y if x.is_contiguous() else 1.01 * y


@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        (Right, set()),
        (AlwaysContiguous, {"channels_last, the result's format"}),
        (AlwaysLast, {"contiguous_format, the result's format"}),
        (Lenient, {"a dimension too many refused"}),
        (WithoutBatchWrong, {"without a batch"}),
        (NeedsBatch, {"without a batch"}),
        (WrongInChannelsLast, {"channels_last"}),
    ],
)
def test_what_is_wrong_is_found(kind, failing) -> None:
    fused, original = kind(), Right()
    x = torch.randn(2, 3, 6, 5, requires_grad=True)
    found = {item.name.partition(":")[0] for item in memory_formats(fused, original, [x]) if not item.ok}
    assert found == failing


class TakesBatchScale(Right):
    """With a further input of the dimensions that a spec gives it, as generated modules have."""

    _fusegen_dimensions = SimpleNamespace(own={1: 4})

    def forward(self, x, scale):
        if scale.dim() != 4:
            raise ValueError("dimensions")
        return super().forward(x) * scale


class BatchScale(Right):
    def forward(self, x, scale):
        return super().forward(x) * scale


def test_inputs_that_keep_their_dimensions_have_the_batch() -> None:
    x, scale = torch.randn(2, 3, 6, 5, requires_grad=True), torch.randn(2, 4, 1, 1, requires_grad=True)
    found = memory_formats(TakesBatchScale(), BatchScale(), [x, scale])
    assert any("without a batch" in item.name for item in found) and all(item.ok for item in found)


class Normalised(nn.Module):
    def __init__(self, layer: nn.Module, channels: int) -> None:
        super().__init__()
        self.layer, self.bn, self.act = layer, nn.BatchNorm2d(channels).eval(), nn.PReLU(channels)
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return self.act(self.bn(self.layer(x)) * self.scale)


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(4, 6, 2, stride=2, groups=2), nn.ConvTranspose2d(4, 6, 2, padding=1, groups=2)],
    ids=["convolution", "transposed"],
)
def test_terms_are_those_of_each_element_of_the_result(layer) -> None:
    """The root of the summed squares of what each element of the result gives to a gradient."""
    torch.manual_seed(2)
    module = Normalised(layer, 6)
    x = torch.randn(2, 4, 4, 3, requires_grad=True)
    grad = torch.randn(module(x).shape)
    exact = module.double().eval()
    names = ["layer.weight", "layer.bias", "bn.weight", "bn.bias", "act.weight", "scale"]
    given = x.detach().double().requires_grad_()
    y = exact(given)
    squares = [torch.zeros_like(exact.get_parameter(name)) for name in names]
    for index in range(y.numel()):
        one = torch.zeros(y.numel(), dtype=torch.float64)
        one[index] = grad.flatten()[index].double()
        parts = torch.autograd.grad(y, [exact.get_parameter(n) for n in names], one.view(y.shape), retain_graph=True)
        squares = [square + part.square() for square, part in zip(squares, parts, strict=True)]
    terms = reference(exact, [x], grad, train=False).terms
    for name, square in zip(names, squares, strict=True):
        # A layer in front of a norm has what would flow back to it with constant statistics, too.
        expected = 2**0.5 * square.sqrt() if name.startswith("layer.") else square.sqrt()
        torch.testing.assert_close(terms[name].view_as(square), expected, msg=lambda text, name=name: f"{name}: {text}")


class CoarseInChannelsLast(Right):
    """As cuDNN where it takes TF32 in one format alone."""

    def forward(self, x):
        y = super().forward(x)
        if x.is_contiguous():
            return y
        return y + 1e-4 * torch.sin(1e4 * y.detach())


class Coarse(CoarseInChannelsLast):
    def forward(self, x):
        return super().forward(x.contiguous(memory_format=torch.channels_last))


def test_eager_may_round_as_in_its_other_format() -> None:
    x = torch.randn(2, 3, 6, 6)
    for original, ok in ((CoarseInChannelsLast(), True), (Right(), False)):
        found = compare_module(Coarse(), original, [x], train=False)
        assert [item.ok for item in found if item.name == "output"] == [ok]


def test_values_that_are_not_finite_in_another_format_make_no_bound() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    wrong, right = torch.full((4,), 2.0), torch.ones(4)
    also = [torch.tensor([1.0, torch.inf, 1.0, 1.0])]
    assert not compare("y", wrong, right, exact, dtype=torch.float32, reduction_length=1, also=also).ok
