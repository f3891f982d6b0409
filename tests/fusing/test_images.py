"""Convolutions of a model and what follows them, with their kernels, emulated."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import fusegen  # noqa: E402
from tests.fusing.emulated import fuse_emulated  # noqa: E402
from tests.fusing.models import losses  # noqa: E402

pytestmark = pytest.mark.torch


class Normed(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int = 1) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Model(nn.Module):
    """Two widths of one form, and convolutions with nothing behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Normed(3, 5), Normed(5, 7)
        self.pair = nn.Sequential(nn.Conv2d(7, 5, 1), nn.MaxPool2d(2), nn.Conv2d(5, 2, 1))

    def forward(self, x):
        return self.pair(self.second(self.first(x)))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, emulation_cache: Path):
    """A replaced model, its original, an input, and the report."""
    torch.manual_seed(0)
    model, x = Model(), torch.randn(2, 3, 6, 8)
    original, directory = copy.deepcopy(model), tmp_path_factory.mktemp("images")
    report = fuse_emulated(model, x, directory, emulation_cache)
    return model, original, x, report


def test_what_is_replaced(case) -> None:
    *_, report = case
    found = [(each.path, each.spec, " ".join(each.ops)) for each in report.replaced]
    ops = "conv2d batch_norm relu"
    assert found == [("first", "normed", ops), ("second", "normed", ops)]
    text = (report.specs / "normed.yaml").read_text(encoding="utf-8")
    assert "x: [batch, in_channels, height, width]" in text and "out_channels: out_channels" in text


def test_kernels_run_and_train_as_the_original(case) -> None:
    model, original, x = (copy.deepcopy(each) for each in case[:3])
    for memory_format in (torch.contiguous_format, torch.channels_last):
        for each in (model, original):
            each.to(memory_format=memory_format)
        given = x.contiguous(memory_format=memory_format)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of kernels that do not run
            for training in (True, False):
                ours, theirs = model.train(training)(given), original.train(training)(given)
                torch.testing.assert_close(ours, theirs)
                assert ours.stride() == theirs.stride()
            model.train(), original.train()
            torch.testing.assert_close(losses(model, [given]), losses(original, [given]), rtol=1e-5, atol=0)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, original.state_dict()[name], rtol=1e-5, atol=1e-6, msg=name)
    assert model.first.norm.num_batches_tracked == original.first.norm.num_batches_tracked == 10


def test_kernels_take_the_calls(case) -> None:
    model, _, x = case[:3]
    (region,) = model.first._fusegen_regions
    assert region.fusegen_obstacle((x,)) is None and region.fusegen_kernels(x)
    assert "dimensions" in region.fusegen_obstacle((x[0],))


def test_a_norm_in_a_mode_of_its_own(case) -> None:
    model, original, x = (copy.deepcopy(each) for each in case[:3])
    for each in (model, original):
        each.train()
        each.second.norm.eval()
    torch.testing.assert_close(model(x), original(x))
    assert torch.equal(model.second.norm.running_mean, original.second.norm.running_mean)


def test_other_convolutions(tmp_path: Path) -> None:
    """Of two convolutions in a module the parts are looked at."""

    class Separable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depth, self.norm = nn.Conv1d(6, 6, 3, padding=1, groups=6), nn.BatchNorm1d(6)
            self.point = nn.Sequential(nn.ConvTranspose1d(6, 4, 2, 2), nn.BatchNorm1d(4), nn.SiLU())

        def forward(self, x):
            return self.point(torch.sigmoid(self.norm(self.depth(x))))

    report = fusegen.fuse(Separable(), torch.randn(3, 6, 9), directory=tmp_path, dry_run=True)
    assert [(each.path, each.ops) for each in report.replaced] == [
        ("point[0:3]", ("conv_transpose1d", "batch_norm", "silu"))
    ]


def test_a_block_of_two_convolutions_is_left_with_the_reason(tmp_path: Path) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv1d(6, 6, 3, padding=1), nn.Conv1d(6, 6, 1)

        def forward(self, x):
            return torch.relu(self.second(torch.relu(self.first(x))) + x)

    report = fusegen.fuse(Block(), torch.randn(3, 6, 9), directory=tmp_path, dry_run=True)
    assert not report.replaced and len(report.left) == 1
    assert "2 convolutions" in report.left[0].reason
    assert "a convolution is replaced with what follows it alone" in report.left[0].reason


class Raised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.up(x)))


def test_a_step_as_long_as_a_line_keeps_its_text(tmp_path: Path) -> None:
    """The remark behind it is cut, which is a line of the model where that has a class."""
    options = nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU()
    for model, path in ((nn.Sequential(Raised()), "0"), (nn.Sequential(*options), "[0:3]")):
        report = fusegen.fuse(model, [torch.randn(2, 8, 6, 8)], directory=tmp_path, dry_run=True)
        assert not report.left and [each.path for each in report.replaced] == [path]
        assert report.replaced[0].ops == ("conv_transpose2d", "batch_norm", "relu")
