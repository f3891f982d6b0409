"""Graphs that are only right with the strides that were traced: values, gradients and memory are eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.capture.layouts import in_channels_last  # noqa: E402
from fusegen.capture.lower import lower  # noqa: E402

LAST = torch.channels_last


@torch.library.custom_op("fusegen_tests::in_memory", mutates_args=())
def in_memory(x: Tensor) -> Tensor:
    """Reads memory, as an operator for contiguous tensors does."""
    return torch.as_strided(x, (x.numel(),), (1,)).clone()


@in_memory.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.numel())


class Two(nn.Module):
    """Two convolutions, for `run`."""

    def __init__(self, run: Callable[[Two, Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 72, 3, padding=1), nn.Conv2d(3, 72, 3, padding=1)
        self.last, self.run = nn.Conv2d(72, 72, 1), run

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def gradients_of_the_second_alone(m: Two, x: Tensor) -> Tensor:
    h = x * 2
    with torch.no_grad():
        target = m.first(h)
    return F.mse_loss(m.second(h), target)


def changed_between_two_convolutions(m: Two, x: Tensor) -> Tensor:
    h = x * 2
    part = h[:, :1]
    with torch.no_grad():
        y = m.first(h)
    part.mul_(3)
    return y + m.second(h)


def flat_view(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    y.flatten(1).add_(1)
    return y * 2


def part_of_a_view(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    y.view(len(x), -1)[:, :9].mul_(2)
    return y


def copy_in_channels_last(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    other = y.contiguous(memory_format=LAST)
    other[:, :4].add_(1)
    return y * 2 + other


def copy_with_channels_last(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    other = y.permute(0, 2, 3, 1).contiguous()
    other[..., :5].zero_()
    return m.last(y) + other.sum()


def image_and_view(m: Two, x: Tensor) -> tuple[Tensor, Tensor]:
    y = m.first(x)
    return y, y.flatten(1)


def copy_and_flat(m: Two, x: Tensor) -> tuple[Tensor, Tensor]:
    y = m.first(x).permute(0, 2, 3, 1)
    return y.contiguous(), y.flatten(2)


def gradients_off_at_the_end(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    torch.set_grad_enabled(False)
    return y


def as_complex(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    return torch.view_as_real(torch.view_as_complex(y.reshape(*y.shape[:2], -1, 2)) * 2)


def own_operator(m: Two, x: Tensor) -> Tensor:
    return m.first(x).detach().mean() + in_memory(m.first(x).detach())


def statistics_of_what_changed(m: Two, x: Tensor) -> Tensor:
    y = m.first(x)
    y.view(len(x), -1).mul_(3)
    return F.batch_norm(y, None, None, training=True)


RUNS = [
    *(gradients_of_the_second_alone, changed_between_two_convolutions, flat_view, part_of_a_view),
    *(copy_in_channels_last, copy_with_channels_last, image_and_view, copy_and_flat, gradients_off_at_the_end),
    *(as_complex, own_operator, statistics_of_what_changed),
]


def by_layouts(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    from torch._dynamo.backends.debugging import aot_eager

    return aot_eager(in_channels_last(lower(module), {}), list(inputs))


@pytest.mark.parametrize("run", RUNS)
def test_as_eager(run: Callable[[Two, Tensor], Any]) -> None:
    torch.manual_seed(0)
    eager = Two(run)
    compiled = copy.deepcopy(eager)
    torch._dynamo.reset()
    found = []
    for model, call in ((eager, eager), (compiled, torch.compile(compiled, backend=by_layouts))):
        torch.manual_seed(1)
        x = torch.randn(2, 3, 8, 8, requires_grad=True)
        with torch.set_grad_enabled(True):
            results = call(x)
        results = list(results) if isinstance(results, tuple) else [results]
        if results[0].requires_grad:
            results[0].square().sum().backward()
        gradients = [each.grad for each in (x, *model.parameters())]
        shared = [one.untyped_storage().data_ptr() == results[0].untyped_storage().data_ptr() for one in results]
        found.append((results, gradients, shared, [(each.stride(), each.requires_grad) for each in results]))
    (expected, gradients, *facts), (results, others, *mine) = found
    for one, other in zip([*expected, *gradients], [*results, *others], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert facts == mine
