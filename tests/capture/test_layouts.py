"""Images that come in contiguous are in channels_last between the convolutions, and leave as they would have been."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from fusegen.backend import Backend  # noqa: E402
from fusegen.capture.layouts import in_channels_last  # noqa: E402
from fusegen.capture.lower import checkpoints  # noqa: E402
from fusegen.capture.partition import partition  # noqa: E402
from fusegen.capture.worth import OTHER_FORMAT, Around, obstacle  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402
from tests.capture.test_backend import check, step  # noqa: E402

LAST = torch.channels_last


class Images(nn.Module):
    """Convolutions of more than 64 channels, with a shortcut, and a `view` of images that are larger than one
    position."""

    def __init__(self, width: int = 72) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(given, width, 3, padding=1, bias=False) for given in (3, width))
        self.bn1, self.bn2, self.head = nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.Linear(width * 9, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)) + y)
        return y, self.head(F.adaptive_avg_pool2d(y, 3).view(len(x), -1))


class Permuted(Images):
    """Returns the image with its channels last, and has a shortcut in a checkpoint."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = checkpoint(lambda y: F.relu(self.bn2(self.conv2(y)) + y), y, use_reentrant=False)
        return y.permute(0, 2, 3, 1), self.head(F.adaptive_avg_pool2d(y, 3).view(len(x), -1))


class Changed(nn.Module):
    """Changes its input between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 72, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        x.add_(1)
        return y * self.conv(x)


class View(nn.Module):
    """Changes a view of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 72, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        y.view(len(x), -1)[:, :9].mul_(2)
        return y


class Both(nn.Module):
    """Returns an image and a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 72, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return y, y[1:]


def graphs(model: nn.Module, *inputs: Tensor, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """The lowered graph, and what becomes of it."""
    before = lowered(model, *inputs, dynamic=False)
    return before, in_channels_last(before, options or {})


def values(module: fx.GraphModule, name: str) -> list[Tensor]:
    """Of the nodes of an operator."""
    return [node.meta["val"] for node in module.graph.nodes if name in str(node.target)]


def results(module: fx.GraphModule) -> list[Tensor]:
    return [node.meta["val"] for node in module.graph.output_node().args[0]]


def whole(model: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[Tensor], Tensor]:
    """The image, with the other result in it."""

    def call(x: Tensor) -> Tensor:
        image, head = model(x)
        return image + head.sum()

    return call


def test_one_copy_where_images_come_in_and_one_where_they_leave() -> None:
    before, made = graphs(Images(), torch.randn(2, 3, 6, 6))
    assert all(each.is_contiguous() for each in values(before, "conv2d"))
    for name in ("conv2d", "batch_norm", "relu"):
        assert values(made, name) and all(each.is_contiguous(memory_format=LAST) for each in values(made, name)), name
    assert [each.shape[1] for each in values(made, "clone")] == [3, 72]
    assert [each.stride() for each in results(made)] == [each.stride() for each in results(before)]
    assert [each.stride() for each in values(before, "relu")][0] == (72 * 36, 36, 6, 1)  # the lowered one is as it was


@pytest.mark.parametrize("make", [Images, Permuted])
def test_values_gradients_and_strides(make: Callable[[], nn.Module], backend: Callable[..., Backend]) -> None:
    torch.manual_seed(0)
    eager = make()
    exact, fused = copy.deepcopy(eager).double(), copy.deepcopy(eager)
    compiled = torch.compile(fused, backend=backend(rest="inductor", choose="all"))
    x = torch.randn(4, 3, 6, 6)
    assert [each.stride() for each in compiled(x)] == [each.stride() for each in eager(x)]
    x, grad = torch.randn(4, 3, 6, 6), torch.randn(eager(x)[0].shape)
    mine, theirs = (step(one, whole(two), x, grad) for one, two in ((fused, compiled), (eager, eager)))
    check(mine, theirs, step(exact, whole(exact), x.double(), grad.double()))


def test_what_a_checkpoint_runs() -> None:
    """The graph that it has is as it was."""
    before, made = graphs(Permuted(), torch.randn(2, 3, 6, 6))
    inside = [checkpoints(module)[0] for module in (before, made)]
    one, other = ([value.is_contiguous(memory_format=LAST) for value in values(each, "conv2d")] for each in inside)
    assert (one, other) == ([False], [True])
    assert [each.stride() for each in results(made)] == [each.stride() for each in results(before)]


@pytest.mark.parametrize("make", [Changed, View])
def test_changes_in_place(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = make(), torch.randn(2, 3, 9, 9)
    compiled = torch.compile(model, backend=Backend(tmp_path, build="never"))
    given, other = x.clone(), x.clone()
    torch.testing.assert_close(compiled(given), model(other))
    assert torch.equal(given, other)


NARROWING = nn.Sequential(nn.Conv2d(3, 160, 3), nn.Conv2d(160, 80, 3))
DEPTHWISE = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.ConvTranspose2d(8, 3, 2))


@pytest.mark.parametrize("model", [NARROWING, DEPTHWISE])
def test_what_tensor_cores_multiply(model: nn.Module) -> None:
    """In float32 it stays."""
    x = torch.randn(2, 3, 9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        _, made = graphs(model, x)
        before, left = graphs(model, x, options={"layout_optimization": False})
    images = [each for each in values(made, "conv") if each.dim() == 4]
    assert images and all(each.is_contiguous(memory_format=LAST) for each in images)
    assert results(made)[0].is_contiguous()
    assert left is before
    before, made = graphs(model, x)
    assert made is before


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (lambda: nn.Conv2d(3, 72, 3), {"layout_optimization": False}),
        (lambda: nn.Conv2d(3, 64, 3), {}),  # few channels
        (lambda: nn.Sequential(nn.Conv2d(3, 72, 1), nn.Conv2d(72, 72, 3, groups=2)), {}),
        (View, {}),  # a copy of it would be changed
        (Both, {}),  # copies would no longer share memory
    ],
)
def test_what_stays(model: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    before, made = graphs(model(), torch.randn(2, 3, 9, 9), options=options)
    assert made is before


def test_groups_of_channels_stay() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        before, made = graphs(
            nn.Sequential(nn.Conv2d(3, 72, 1), nn.Conv2d(72, 72, 3, groups=2)), torch.randn(2, 3, 9, 9)
        )
    assert made is before


@pytest.mark.parametrize(("width", "why_not"), [(72, OTHER_FORMAT), (64, None)])
def test_regions_that_inductor_brings_into_another_format(width: int, why_not: str | None) -> None:
    """Where the graph could not be brought there before."""
    model = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())
    before, made = graphs(model, torch.randn(2, 3, 9, 9))
    for module, expected in ((before, why_not), (made, None)):
        (region,) = partition(module.graph)
        assert obstacle(region, Around.of(module.graph, {})) == expected
        for options in (None, {"layout_optimization": False}):
            assert obstacle(region, Around.of(module.graph, options)) is None


def test_what_is_in_channels_last_stays() -> None:
    model = nn.Sequential(nn.Conv2d(3, 72, 3), nn.Conv2d(72, 72, 3))
    before, made = graphs(model.to(memory_format=LAST), torch.randn(2, 3, 6, 6).to(memory_format=LAST))
    assert made is before
