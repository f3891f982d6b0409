"""What is measured of a chain behind a convolution."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.tune.command import _sizes  # noqa: E402
from fusegen.tune.options import Options  # noqa: E402
from tests.plan.planning import committed  # noqa: E402


def test_the_batch_grows_and_the_positions_stay() -> None:
    plan = committed("convtranspose3d_add_hardswish")
    found = _sizes(plan, Options())
    assert [size.rows for size in found] == [16 * 32**3, 128 * 32**3, 1024 * 32**3]
    assert {size.given[1:] for size in found} == {(32, 16, 16, 16)}


def test_rows_that_are_asked_for_are_about_met() -> None:
    (size,) = _sizes(committed("conv2d_batchnorm_scaling"), Options(rows=(1000,)))
    assert 800 <= size.rows <= 1200 and size.channels == 64


def test_a_convolution_that_keeps_the_channels_has_the_usual_ones(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(
        "fusegen: 1\nname: demo\ndims: {batch: 8, channels: 48, length: 20}\n"
        "arguments: {channels: {type: dim}}\ninputs: {x: [batch, channels, length]}\nchain:\n"
        "  - {op: conv1d, name: conv, out_channels: channels, kernel_size: 3, padding: 1}\n  - {op: relu}\n"
    )
    (size,) = _sizes(plan_file(path), Options(rows=(400,)))
    assert (size.channels, size.rows) == (48, 400)
