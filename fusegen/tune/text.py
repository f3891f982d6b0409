"""What was measured, as a table for a terminal."""

from __future__ import annotations

from rich.table import Table

from fusegen.plan.launches.tuning import Architecture, Measurement

_HEADINGS = ("program", "dtype", "rows", "channels", "default us", "fastest us", "gain", "schedule", "launch shapes")


def table(spec: str, architecture: Architecture) -> Table:
    """A line for each program, dtype and size; where the default is fastest it says so."""
    title = f"{spec} on {architecture.gpu} ({architecture.target})"
    shown = Table(*_HEADINGS, title=title, title_justify="left", box=None)
    for index, column in enumerate(shown.columns):
        column.no_wrap = True
        column.justify = "right" if 2 <= index <= 6 else "left"
    for m in architecture.measurements:
        gain = m.default_microseconds / m.microseconds - 1
        shown.add_row(
            *(m.program, m.dtype, str(m.rows), str(m.channels)),
            *(f"{m.default_microseconds:.2f}", f"{m.microseconds:.2f}", f"{gain:.0%}"),
            _schedule(m),
            str(m.shapes),
        )
    return shown


def _schedule(measurement: Measurement) -> str:
    """The schedule that ran with the fastest shapes, and that of the default where it is another."""
    ran, default = measurement.ran or "", measurement.default_ran
    return ran if default in (None, ran) else f"{ran}, by default {default}"
