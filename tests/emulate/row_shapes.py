"""The launch shapes of row kernels, as the emitted launchers compute them, for tests to ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fusegen.emulate import Buffer
from fusegen.plan.shapes import SCHEDULES
from tests.emulate.building import compiled_shapes

_SOURCE = """
#include "../support/reduce.cuh"
#include "../support/row_shapes.cuh"

extern "C" int shape(int vector, int64_t* found, int64_t rows, int64_t groups, int64_t length, int64_t packed,
                     int64_t most_items, int64_t row_waves, int64_t doubles, int64_t sums, int64_t blocks,
                     int64_t constants, int64_t again, int64_t values, int64_t bytes, int64_t has_large,
                     int64_t staged, int64_t schedule, int64_t resident, int64_t cluster) {
  fusegen::Shapes shapes;
  shapes.row_waves = row_waves;
  shapes.schedule = schedule;
  const fusegen::RowWork work{int(sums), int(blocks), int(constants), int(again), int(values), int(bytes),
                              fusegen::row_most_threads(has_large != 0, staged, 200 * 1024), int(cluster)};
  fusegen::Row row = fusegen::row_shape(
      shapes, work, rows, groups, length, vector, packed != 0, int(most_items), doubles != 0, 132);
  if (row.items > 0) {
    const int blocks = resident > 0 ? int(resident) : row.resident;
    fusegen::set_row_blocks(row, shapes, work, rows, groups, length, blocks, 132);
  }
  const int64_t fields[] = {row.items, row.lanes, row.across, row.height, row.block.x, row.block.y,
                            row.grid.x, row.grid.y, row.step, row.large, row.period, row.grid.z};
  for (int i = 0; i < 12; ++i) found[i] = fields[i];
  return cudaGetLastError();
}

extern "C" int64_t ragged_doubles(int sums, int64_t constants, int64_t values, int64_t bytes) {
  return fusegen::ragged_doubles(fusegen::RowWork{sums, 3, int(constants), 1, int(values), int(bytes), 512, 8});
}

extern "C" int64_t can_be_wide(int again, int64_t packed, int64_t length, int64_t wide) {
  return fusegen::row_can_be_wide(fusegen::RowWork{3, 3, 3, again, 15, 2, 512, 8}, packed != 0, length, int(wide));
}

__global__ void take_seats(int lanes, int across, int height, int* found) {
  const fusegen::Seat seat = fusegen::seat_of<true>(threadIdx.x, lanes, across, height);
  const int values[] = {seat.taken, seat.row, seat.segment, seat.lane, seat.slot};
  for (int i = 0; i < 5; ++i) found[threadIdx.x * 5 + i] = values[i];
}

extern "C" int seats(int threads, int* found, int64_t lanes, int64_t across, int64_t height) {
  return fusegen::launch(take_seats, dim3(1), dim3(threads), 0, nullptr, int(lanes), int(across), int(height), found);
}
"""
_FIELDS = (
    "items",
    "lanes",
    "across",
    "height",
    "threads",
    "one",
    "grid_x",
    "grid_y",
    "step",
    "large",
    "period",
    "cluster",
)

# Of RowWork, of Shapes, and what the launcher passes on; `resident` 0 is what the launch bounds promise. `bytes` 0
# are those of an element of which a vector has 16 bytes; `cluster` is the most blocks that one may have.
_WORK = {"sums": 3, "blocks": 4, "constants": 4, "again": 1, "values": 10, "bytes": 0, "has_large": False, "staged": 0}
_DEFAULTS = {
    "most_items": 2,
    "row_waves": 1,
    "doubles": False,
    **_WORK,
    "schedule": "automatic",
    "resident": 0,
    "cluster": 8,
}


class RowShapes:
    """Launch shapes for 132 multiprocessors with 200 KiB of shared memory that a block may have for its columns."""

    def __init__(self, directory: Path) -> None:
        self._library = compiled_shapes(_SOURCE, directory)
        self._found = Buffer.poisoned([len(_FIELDS)], torch.int64)

    def __call__(
        self, rows: int, groups: int, length: int, vector: int, packed: bool, most_items: int = 2, **asked: Any
    ) -> dict[str, int]:
        """A launch for segments of `length` elements: its fields by name, items 0 where the row does not fit.

        Without has_large a kernel with column sums has no instance for large blocks; one without them always has.
        """
        values = _DEFAULTS | {"most_items": most_items} | asked
        assert values.keys() == _DEFAULTS.keys()
        values["schedule"] = SCHEDULES.index(values["schedule"])
        values["has_large"] = values["has_large"] or values["sums"] == 0
        values["bytes"] = values["bytes"] or 16 // vector
        self._library.call("shape", vector, self._found, *map(int, (rows, groups, length, packed, *values.values())))
        return dict(zip(_FIELDS, self._found.tensor().tolist(), strict=True))

    def ragged_doubles(self, *, sums: int, constants: int, values: int, bytes: int) -> bool:
        """Whether threads of a long segment without vectors may have two of them."""
        return bool(self._library.call_int64("ragged_doubles", sums, constants, values, bytes))

    def can_be_wide(self, length: int, *, again: int, packed: bool) -> bool:
        """Whether threads with column sums may have eight elements of 16 bits of a segment."""
        return bool(self._library.call_int64("can_be_wide", again, int(packed), length, 8))

    def seats(self, threads: int, lanes: int, across: int, height: int) -> list[list[int]]:
        """What each thread of a block takes: whether it does, its row, segment, lane and slot."""
        found = Buffer.poisoned([threads, 5], torch.int32)
        self._library.call("seats", threads, found, lanes, across, height)
        return found.tensor().tolist()
