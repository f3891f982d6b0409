"""What was measured to be fastest, as a value: for each architecture the launch shapes of programs at some sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import zip_longest

from fusegen.plan.launches.kinds import L2, PERSISTENT
from fusegen.plan.launches.shapes import DEFAULT, L2_IF_IT_FITS, PERSISTENT_IF_IT_FITS, Shapes

_IF_IT_FITS = {PERSISTENT: PERSISTENT_IF_IT_FITS, L2: L2_IF_IT_FITS}


@dataclass(frozen=True)
class Measurement:
    """One program at one size. dtype: of the activations, in the plain mode. groups: None where the program has none.

    shapes: the fastest, the default where none is clearly faster. microseconds: what it takes, beside the default.
    ran, launches: the schedule that the launcher ran with these shapes, and its kernels with their grids and blocks.
    default_ran: the schedule that it ran by default, where shapes are others. None where no launcher said so.
    """

    program: str
    dtype: str
    rows: int
    channels: int
    groups: int | None
    shapes: Shapes
    microseconds: float
    default_microseconds: float
    ran: str | None = None
    launches: str | None = None
    default_ran: str | None = None


@dataclass(frozen=True)
class Architecture:
    """All that was measured on GPUs of one compute capability. target: such as sm_90, never sm_90a."""

    target: str
    gpu: str
    torch: str
    cuda: str
    measurements: tuple[Measurement, ...]

    def of(self, program: str, dtype: str) -> tuple[Measurement, ...]:
        """The sizes at which one program was measured in one dtype, by rows."""
        found = [m for m in self.measurements if (m.program, m.dtype) == (program, dtype)]
        return tuple(sorted(found, key=lambda m: m.rows))


Tuning = tuple[Architecture, ...]


@dataclass(frozen=True)
class Range:
    """Launch shapes for all rows after the range before, up to `most_rows`; None: however many.

    channels: with which they were measured. length: those of a group, all channels where there are no groups.
    """

    most_rows: int | None
    channels: int
    length: int
    shapes: Shapes


def ranges(measurements: tuple[Measurement, ...]) -> tuple[Range, ...]:
    """Which shapes serve which rows: those of the nearest size in ratio, so that ranges end at geometric means. Between
    two sizes with different shapes, none but the default holds for more than sqrt(2) times or fewer than 1 / sqrt(2)
    times the rows that it was measured with: what is fastest for a tile of so many rows need not be for another.

    measurements: of one program in one dtype, by rows. None where all are the default. Where the
    persistent or the L2-resident schedule was measured, other sizes of the range may not fit.
    """
    found: list[Range] = []

    def serve(most_rows: int | None, measurement: Measurement, shapes: Shapes) -> None:
        shapes = replace(shapes, schedule=_IF_IT_FITS.get(shapes.schedule, shapes.schedule))
        length = measurement.channels // (measurement.groups or 1)
        serving = Range(most_rows, measurement.channels, length, shapes)
        if found and replace(found[-1], most_rows=most_rows) == serving:
            found.pop()
        found.append(serving)

    for measurement, following in zip_longest(measurements, measurements[1:]):
        shapes = measurement.shapes
        if following is None:
            serve(None, measurement, shapes)
            continue
        middle = math.isqrt(measurement.rows * following.rows)
        alike = shapes == following.shapes
        farthest = middle if alike or shapes == DEFAULT else min(middle, math.isqrt(2 * measurement.rows**2))
        serve(farthest, measurement, shapes)
        nearest = middle if alike or following.shapes == DEFAULT else max(middle, math.isqrt(following.rows**2 // 2))
        if farthest < middle:
            serve(middle, measurement, DEFAULT)
        if nearest > middle:
            serve(nearest, following, DEFAULT)
    return () if all(each.shapes == DEFAULT for each in found) else tuple(found)
