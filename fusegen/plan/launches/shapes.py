"""Launch shapes: what a launch leaves open, and the values that are measured; `struct Shapes` of shapes.cuh."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fusegen.plan.launches.kinds import AUTOMATIC, L2, PERSISTENT, TWO_PASS

# `enum Schedule` of shapes.cuh has the same numbers.
PERSISTENT_IF_IT_FITS, L2_IF_IT_FITS = "persistent_if_it_fits", "l2_if_it_fits"
SCHEDULES = (AUTOMATIC, PERSISTENT, L2, TWO_PASS, PERSISTENT_IF_IT_FITS, L2_IF_IT_FITS)


@dataclass(frozen=True)
class Shapes:
    """`struct Shapes` of shapes.cuh, which says what the fields mean; the schedule by name.

    The defaults are what launchers take where no tuning says otherwise.
    """

    schedule: str = AUTOMATIC
    pointwise_blocks: int = 0
    row_waves: int = 1
    row_share: int = 0
    column_threads_per_row: int = 0
    column_cluster: int = 0
    l2_lag: int = 0
    row_reduction_blocks: int = 0

    @property
    def changes(self) -> dict[str, str | int]:
        """The fields that differ from the default, in order."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(DEFAULT, name)}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.changes.items()) or "default"


DEFAULT = Shapes()
