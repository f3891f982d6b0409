"""Plots of the CSV, as SVG and PNG. A pure function of the rows: the same ones give the same bytes of SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fusegen.bench.names import CONTRACTION, COPY, FUSED, MODES, PEERS, SHORT_MODES
from fusegen.bench.rows import Row, by_configuration
from fusegen.files import write_output, writing

# Of Okabe and Ito, told apart by the colour-blind too.
_COLOURS = {
    FUSED: "#d55e00",
    "eager": "#999999",
    "compile": "#56b4e9",
    "reduce-overhead": "#0072b2",
    "max-autotune": "#009e73",
    COPY: "#000000",
}
_STYLE: dict[Any, Any] = {  # matplotlib's own types list the names of its version
    "svg.hashsalt": "fusegen",  # else element names are random
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}
# A place for neither a date nor a version, which would change the file.
_METADATA = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
_DPI = 150


def write_plots(rows: Sequence[Row], directory: Path, *, overwrite: bool = False) -> list[Path]:
    """The files written: times_* for each GPU, spec and shape; bandwidth_* for each GPU and spec with several shapes.

    rows: the latest of each configuration. Those of one GPU alone leave its name out of the files' names. Raises
    SpecError where the directory cannot be written, and rather than replace a file without `overwrite`.
    """
    import matplotlib

    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    several_gpus = len({row.gpu for row in rows}) > 1
    written = []
    with matplotlib.rc_context(_STYLE):
        for name, gpu, figure in _figures(rows):
            stem = re.sub(r"[^\w.-]+", "_", f"{name}_{gpu}" if several_gpus else name)
            for kind, metadata in _METADATA.items():
                path = directory / f"{stem}.{kind}"
                drawn = io.BytesIO()
                figure.savefig(drawn, format=kind, metadata=metadata, dpi=_DPI)
                write_output(path, drawn.getvalue(), overwrite=overwrite)
                written.append(path)
    return written


def _figures(rows: Sequence[Row]) -> Iterator[tuple[str, str, Any]]:
    for gpu, spec in dict.fromkeys((row.gpu, row.spec) for row in rows):
        mine = [row for row in rows if (row.gpu, row.spec) == (gpu, spec)]
        shapes = dict.fromkeys(row.shape for row in mine)
        for shape in shapes:
            figure = times([row for row in mine if row.shape == shape])
            if figure is not None:
                yield f"times_{spec}_{shape}", gpu, figure
        if len(shapes) > 1:
            figure = bandwidth(mine)
            if figure is not None:
                yield f"bandwidth_{spec}", gpu, figure


def times(rows: Sequence[Row]) -> Any:
    """Bars for each dtype and mode: time over that of the fastest peer, with quartiles, and milliseconds at the bars.

    The line across a group is the contraction alone. Device time, or wall time where no other was taken. None without
    a peer.
    """
    wall = all(row.device_ms is None for row in rows)
    timed = [row for row in rows if _time(row, wall)[1]]
    groups = [(first, found) for first, found in by_configuration(timed) if any(peer in found for peer in PEERS)]
    if not groups:
        return None
    subjects = [name for name in (FUSED, *PEERS) if any(name in found for _, found in groups)]
    width = 0.8 / len(subjects)
    figure, axes = _subplots(1, 1, max(6.0, 0.45 * len(groups) * len(subjects) + 2), 4.2)
    axis = axes[0][0]
    for position, (_, found) in enumerate(groups):
        best = min(_time(found[peer], wall)[1] for peer in PEERS if peer in found)
        for index, name in enumerate(subjects):
            if name not in found:
                continue
            low, middle, high = _time(found[name], wall)
            x = position + (index - (len(subjects) - 1) / 2) * width
            error = [[(middle - low) / best], [(high - middle) / best]]
            label = name if name not in axis.get_legend_handles_labels()[1] else None
            axis.bar(x, middle / best, width * 0.92, yerr=error, color=_COLOURS[name], label=label, ecolor="#444444")
            axis.annotate(f"{middle:.3g}", (x, high / best), xytext=(0, 2), textcoords="offset points", **_SMALL)
        if CONTRACTION in found:
            label = "contraction alone" if position == 0 else None
            level = _time(found[CONTRACTION], wall)[1] / best
            axis.plot([position - 0.42, position + 0.42], [level, level], color="black", linewidth=1, label=label)
    axis.set_xticks(
        range(len(groups)), [f"{first.dtype}\n{SHORT_MODES.get(first.mode, first.mode)}" for first, _ in groups]
    )
    axis.set_ylabel(f"{'wall' if wall else 'device'} time / fastest peer")
    axis.set_title(f"{rows[0].spec}, {rows[0].shape}, {rows[0].gpu}; {'us' if wall else 'ms'} at the bars")
    figure.legend(loc="outside lower center", ncols=len(subjects) + 1)
    return figure


def bandwidth(rows: Sequence[Row]) -> Any:
    """Share of the large copy's bytes per second over the bytes of the tail, a panel for each dtype and mode.

    A subject's is that of its tail's fewest bytes in the time that the chain takes without its contraction; `copy` is
    a copy of as many bytes. None without such rows.
    """
    rows = [row for row in rows if row.tail_bytes and row.copy_gb_s and _tail(row) is not None]
    dtypes = list(dict.fromkeys(row.dtype for row in rows))
    modes = [mode for mode in MODES if any(row.mode == mode for row in rows)]
    if not rows:
        return None
    figure, axes = _subplots(len(dtypes), len(modes), 3.6 * len(modes) + 1, 2.6 * len(dtypes) + 1)
    for y, dtype in enumerate(dtypes):
        for x, mode in enumerate(modes):
            axis = axes[y][x]
            here = [row for row in rows if (row.dtype, row.mode) == (dtype, mode)]
            for name, colour in _COLOURS.items():
                points = sorted(((row.tail_bytes or 0) / 2**20, _share(row)) for row in here if row.subject == name)
                if points:
                    style = "--" if name == COPY else "-"
                    axis.plot(*zip(*points, strict=True), style, marker=".", color=colour, label=name)
            axis.set_xscale("log", base=2)
            axis.set_ylim(bottom=0)
            axis.set_title(f"{dtype}, {MODES[mode]}")
            if y == len(dtypes) - 1:
                axis.set_xlabel("bytes of the tail, MiB")
            if x == 0:
                axis.set_ylabel("share of copy bandwidth")
    handles = {label: handle for row in axes for axis in row for handle, label in zip(*_legend(axis), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    figure.suptitle(f"{rows[0].spec}, {rows[0].gpu}, copy of 2 GiB: {rows[0].copy_gb_s:.0f} GB/s")
    return figure


_SMALL = {"ha": "center", "va": "bottom", "fontsize": 6, "rotation": 90}


def _subplots(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    # Not pyplot, which keeps figures and chooses a window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _time(row: Row, wall: bool) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile; the median for a quartile that is not known."""
    low, middle, high = (
        (row.wall_us_q1, row.wall_us, row.wall_us_q3) if wall else (row.device_ms_q1, row.device_ms, row.device_ms_q3)
    )
    middle = middle or 0.0
    return middle if low is None else low, middle, middle if high is None else high


def _tail(row: Row) -> float | None:
    """Milliseconds of the tail. None where it is lost in the noise of the contraction."""
    value = row.device_ms if row.subject == COPY else row.tail_ms
    return value if value is not None and value > 0 else None


def _share(row: Row) -> float:
    tail = _tail(row)
    assert tail is not None and row.tail_bytes is not None and row.copy_gb_s is not None
    return row.tail_bytes / (tail * 1e-3) / (row.copy_gb_s * 1e9)


def _legend(axis: Any) -> tuple[list[Any], list[str]]:
    return axis.get_legend_handles_labels()
