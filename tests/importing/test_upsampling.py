"""Imports of modules with upsampling: layers and functions, and their options."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from tests.importing.test_pooling import steps

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("made", "result", "wanted"),
    [
        ("self.up = nn.Upsample(scale_factor=2)", "self.up(self.conv(x).relu())", {"scale_factor": 2.0}),
        (
            "self.up = nn.Upsample(size=(9, 7), mode='bilinear', align_corners=True)",
            "self.up(self.conv(x).relu())",
            {"size": [9, 7], "mode": "bilinear", "align_corners": True},
        ),
        (
            "",
            "F.interpolate(self.conv(x).relu(), scale_factor=(2.0, 1.5), mode='bicubic')",
            {"scale_factor": [2.0, 1.5], "mode": "bicubic"},
        ),
        ("", "F.interpolate(self.conv(x).relu(), size=8, mode='nearest-exact')", {"size": 8, "mode": "nearest-exact"}),
    ],
)
def test_upsampling(made, result, wanted) -> None:
    *_, up, last = steps(made, result)
    assert up.pop("name") == ("up" if made else "upsample")
    assert {"mode": "nearest", **up} == {"op": "upsample", "mode": "nearest", **wanted} and last == {"op": "tanh"}


def test_channels_as_positions() -> None:
    made = "self.up, self.norm = nn.PixelShuffle(r), nn.BatchNorm2d(c // r**2)"
    *_, up, norm, last = steps(made, "self.norm(self.up(self.conv(x).relu()))", "c, r", (12, 2), (2, 12, 9, 8))
    assert up.pop("op") == "pixel_shuffle" and up["upscale_factor"] in (2, "r") and up["name"] == "up"
    assert norm["op"] == "batch_norm" and last == {"op": "tanh"}


@pytest.mark.parametrize(("factor", "wanted"), [(2, "s"), (1.5, 1.5), (2.0, 2.0)])
def test_a_factor_that_is_an_argument(factor, wanted) -> None:
    """One that is no whole number stays the number that it is."""
    *_, up, _ = steps("self.up = nn.Upsample(scale_factor=s)", "self.up(self.conv(x).relu())", "c, s", (4, factor))
    assert up["scale_factor"] == wanted


def test_positions_as_channels() -> None:
    *_, down, _ = steps("", "F.pixel_unshuffle(self.conv(x).relu(), 2)", shape=(2, 4, 10, 12))
    assert down.pop("op") == "pixel_unshuffle" and down["downscale_factor"] == 2


def test_an_input_of_the_upsampled_size() -> None:
    from tests.importing.convolved import Convolved

    text = Convolved(
        "c",
        "self.norm, self.up = nn.BatchNorm2d(c), nn.Upsample(scale_factor=2)",
        "return torch.relu(self.up(self.norm(x)) + z)",
        inputs="x, z",
    ).imported((4,), (2, 4, 5, 6), (2, 4, 10, 12))
    assert "upsample" in text and "input: z" in text


def test_a_size_that_another_tensor_has_is_refused() -> None:
    with pytest.raises(SpecError, match="with a size that changes"):
        steps("", "F.interpolate(self.conv(x).relu(), size=x.shape[2:])")
