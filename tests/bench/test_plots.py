"""Plots: which files there are, that they are the same every time, and what the bars show."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.bench.rows import Row
from tests.bench.test_rows import row

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'fusegen[bench]'")


def rows_of(*shapes: str, **changes) -> list[Row]:
    found = []
    for index, shape in enumerate(shapes):
        common = {"shape": shape, "tail_bytes": 2**20 * 4**index, "copy_gb_s": 1000.0, **changes}
        floor = 0.002 * 4**index
        for dtype in ("fp32", "bf16"):
            place = {**common, "dtype": dtype}
            found.append(row(subject="copy", device_ms=floor, **place))
            found.append(row(subject="contraction", device_ms=1.0, **place))
            for subject, tail in (("fused", 1.25), ("eager", 5.0), ("compile", 2.0)):
                time = 1.0 + tail * floor
                found.append(
                    row(subject=subject, device_ms=time, device_ms_q3=time * 1.1, tail_ms=tail * floor, **place)
                )
    return found


def test_files_for_each_shape_and_one_over_the_sizes(tmp_path: Path) -> None:
    from fusegen.bench.plots import write_plots

    names = {path.name for path in write_plots(rows_of("4x8x8", "8x8x8"), tmp_path / "a")}
    stems = ("times_demo_4x8x8", "times_demo_8x8x8", "bandwidth_demo")
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")}
    assert names == {path.name for path in (tmp_path / "a").iterdir()}
    assert {path.name for path in write_plots(rows_of("4x8x8"), tmp_path / "b")} == {
        f"times_demo_4x8x8.{kind}" for kind in ("svg", "png")
    }
    two = rows_of("4x8x8") + rows_of("4x8x8", gpu="Other/GPU 2")
    names = [path.name for path in write_plots(two, tmp_path / "c")]
    assert "times_demo_4x8x8_NVIDIA_Test.svg" in names and "times_demo_4x8x8_Other_GPU_2.svg" in names


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    from fusegen.bench.plots import write_plots

    rows = rows_of("4x8x8", "8x8x8")
    first, second = (write_plots(rows, tmp_path / name) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    other = write_plots([*rows_of("4x8x8", "8x8x8")[:-1], row(subject="compile", shape="8x8x8")], tmp_path / "c")
    assert [path.read_bytes() for path in first] != [path.read_bytes() for path in other]
    svg = first[0].read_text(encoding="utf-8")
    assert svg.startswith("<?xml") and "<dc:date>" not in svg and "Matplotlib v" not in svg


def test_bars_are_times_over_that_of_the_fastest_peer() -> None:
    from fusegen.bench.plots import times

    axis = times(rows_of("4x8x8")).axes[0]
    heights = [bar.get_height() for bar in axis.patches]
    fused, eager, compiled = 1 + 1.25 * 0.002, 1 + 5 * 0.002, 1 + 2 * 0.002
    assert heights == pytest.approx([fused / compiled, eager / compiled, 1.0] * 2)
    assert [text.get_text() for text in axis.texts[:2]] == [f"{fused:.3g}", f"{eager:.3g}"]
    level = next(line for line in axis.lines if len(line.get_xdata()) == 2 and line.get_label() == "contraction alone")
    assert list(level.get_ydata()) == pytest.approx([1 / compiled] * 2)


def test_wall_time_where_no_other_was_taken_and_nothing_without_a_peer() -> None:
    from fusegen.bench.plots import times

    rows = [row(subject="fused", wall_us=50.0), row(subject="eager", wall_us=100.0)]
    axis = times(rows).axes[0]
    assert [bar.get_height() for bar in axis.patches] == [0.5, 1.0] and "wall" in axis.get_ylabel()
    assert times(rows[:1]) is None


def test_shares_of_the_copy_bandwidth() -> None:
    from fusegen.bench.plots import bandwidth

    figure = bandwidth(rows_of("4x8x8", "8x8x8"))
    assert len(figure.axes) == 2
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    of_copy = 2**20 / 2e-6 / 1e12
    assert list(lines["copy"]) == pytest.approx([of_copy] * 2)
    assert list(lines["fused"]) == pytest.approx([of_copy / 1.25] * 2)
    assert list(lines) == ["fused", "eager", "compile", "copy"]


def test_a_tail_that_is_lost_in_the_noise_has_no_share() -> None:
    from fusegen.bench.plots import bandwidth

    rows = [row(subject="fused", tail_ms=-0.001, tail_bytes=1000, copy_gb_s=1000.0)]
    assert bandwidth(rows) is None
