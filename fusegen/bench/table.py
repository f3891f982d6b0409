"""What was measured, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fusegen.bench.names import FUSED, SHORT_MODES
from fusegen.bench.rows import Row, by_configuration, latest

_HEADINGS = (
    "dtype",
    "mode",
    "subject",
    "device ms",
    "quartiles",
    "wall us",
    "/ best",
    "tail ms",
    "/ floor",
    "peak MiB",
    "schedule",
)
_LEGEND = (
    "device: medians of CUDA events from a flushed L2. wall: of a synchronised loop. / best: time over that of the "
    "fastest peer, device and wall. tail: time without the contraction's. / floor: over a copy of the fewest bytes of "
    "the tail, which `copy` is. peak: of one call, beyond inputs and parameters; CUDA graphs keep theirs, not shown. "
    "schedule: what launchers say that they ran, forward / backward; the CSV has their grids and blocks."
)


def tables(rows: Iterable[Row]) -> Iterator[RenderableType]:
    """A table for each GPU, spec and shape, of the latest rows; then the ceilings."""
    rows = latest(rows)
    for place in dict.fromkeys((row.gpu, row.spec, row.shape) for row in rows):
        mine = [row for row in rows if (row.gpu, row.spec, row.shape) == place]
        yield _table(mine)
    if rows:
        yield Text(_LEGEND + "\n", style="dim")
    for gpu in dict.fromkeys(row.gpu for row in rows):
        yield Text(ceilings([row for row in rows if row.gpu == gpu]) + "\n")


def ceilings(rows: Sequence[Row]) -> str:
    """One sentence about the GPU that the rows are of."""
    first = rows[0]
    contractions = {row.dtype: row.contraction_tflop_s for row in rows if row.contraction_tflop_s is not None}
    parts = [f"copy {first.copy_gb_s:.0f} GB/s"] if first.copy_gb_s is not None else []
    parts += [f"{dtype} product {value:.0f} TFLOP/s" for dtype, value in contractions.items()]
    at_best = f": at best {', '.join(parts)}" if parts else ""
    return f"{first.gpu}, torch {first.torch}, CUDA {first.cuda}{at_best}"


def _table(rows: Sequence[Row]) -> Table:
    shown = Table(*_HEADINGS, title=f"{rows[0].spec} {rows[0].shape}", title_justify="left", box=None)
    for index, column in enumerate(shown.columns):
        column.no_wrap = True
        column.justify = "left" if index < 3 or column.header == "schedule" else "right"
    for first, subjects in by_configuration(rows):
        place = (first.dtype, SHORT_MODES.get(first.mode, first.mode))
        for row in subjects.values():
            ratios = [f"{ratio:.2f}" for ratio in (row.device_ratio, row.wall_ratio) if ratio is not None]
            cells = (
                number(row.device_ms),
                f"{number(row.device_ms_q1)}-{number(row.device_ms_q3)}" if row.device_ms_q1 is not None else "",
                number(row.wall_us),
                " ".join(ratios),
                number(row.tail_ms),
                "" if row.tail_over_floor is None else f"{row.tail_over_floor:.2f}",
                "" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.1f}",
                row.schedule,
            )
            shown.add_row(*place, row.subject, *cells, style="bold" if row.subject == FUSED else "")
            place = ("", "")
        shown.add_section()
    return shown


def number(value: float | None) -> str:
    """Four digits, never with an exponent; nothing for None."""
    if value is None:
        return ""
    if value >= 1000:
        return f"{value:.0f}"
    text = f"{value:.4g}"
    return f"{value:.6f}" if "e" in text else text
