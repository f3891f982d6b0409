"""The launch shapes of row kernels, as the emitted launchers compute them, for tests to ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fusegen.emulate import Buffer
from fusegen.plan.launches.shapes import SCHEDULES
from tests.emulate.building import compiled_shapes

_SOURCE = """
#include "../support/kernels/schedule_list.cuh"
#include "../support/row_shapes.cuh"
#include "../support/thread_positions.cuh"

extern "C" int shape(int vector, int64_t* found, int64_t rows, int64_t groups, int64_t length, int64_t packed,
                     int64_t most_items, int64_t row_waves, int64_t doubles, int64_t sums, int64_t blocks,
                     int64_t constants, int64_t again, int64_t values, int64_t bytes, int64_t has_full_blocks,
                     int64_t shared_bytes, int64_t schedule, int64_t resident, int64_t cluster) {
  fusegen::Shapes shapes;
  shapes.row_waves = row_waves;
  const fusegen::RowWork work{int(sums), int(blocks), int(constants), int(again), int(values), int(bytes),
                              fusegen::row_most_threads(has_full_blocks != 0, shared_bytes, 200 * 1024), int(cluster)};
  fusegen::Row row = fusegen::row_shape(
      work, rows, groups, length, vector, packed != 0, int(most_items), doubles != 0, 132);
  const double cost = row.second_read_pays ? fusegen::kAlwaysSlower : fusegen::kAlwaysFaster;
  const fusegen::Candidate candidates[] = {
      {fusegen::kPersistent, fusegen::kPersistentIfItFits, row.items > 0, row.items > 0, cost},
      {fusegen::kTwoPass, fusegen::kTwoPass, true, true, fusegen::kAlwaysSlower}};
  if (fusegen::choose_schedule(schedule, candidates).place != 0) row.items = 0;
  if (row.items > 0) {
    const int blocks = resident > 0 ? int(resident) : row.resident;
    fusegen::set_row_blocks(row, shapes, work, rows, groups, length, blocks, 132);
  }
  const int64_t fields[] = {row.items, row.lanes, row.segments_per_block, row.rows_per_iteration,
                            row.block.x, row.block.y,
                            row.grid.x, row.grid.y, row.step, row.full_block, row.period, row.grid.z};
  for (int i = 0; i < 12; ++i) found[i] = fields[i];
  return cudaGetLastError();
}

extern "C" int64_t unaligned_doubles(int sums, int64_t constants, int64_t values, int64_t bytes) {
  return fusegen::unaligned_doubles(fusegen::RowWork{sums, 3, int(constants), 1, int(values), int(bytes), 512, 8});
}

extern "C" int64_t can_have_full_vector(int again, int64_t packed, int64_t length, int64_t vector) {
  const fusegen::RowWork work{3, 3, 3, again, 15, 2, 512, 8};
  return fusegen::row_can_have_full_vector(work, packed != 0, length, int(vector));
}

__global__ void take_positions(int lanes, int segments, int rows, int* found) {
  const fusegen::ThreadPosition position = fusegen::position_of<true>(threadIdx.x, lanes, segments, rows);
  const int values[] = {position.active, position.row, position.segment, position.lane, position.index};
  for (int i = 0; i < 5; ++i) found[threadIdx.x * 5 + i] = values[i];
}

extern "C" int positions(int threads, int* found, int64_t lanes, int64_t segments, int64_t rows) {
  return fusegen::launch(
      take_positions, dim3(1), dim3(threads), 0, nullptr, int(lanes), int(segments), int(rows), found);
}
"""
_FIELDS = (
    "items",
    "lanes",
    "segments_per_block",
    "rows_per_iteration",
    "threads",
    "one",
    "grid_x",
    "grid_y",
    "step",
    "full_block",
    "period",
    "cluster",
)

# Of RowWork, of Shapes, and what the launcher passes on; `resident` 0 is what the launch bounds promise. `bytes` 0
# are those of an element of which a vector has 16 bytes; `cluster` is the most blocks that one may have.
_WORK = {
    "sums": 3,
    "blocks": 4,
    "constants": 4,
    "again": 1,
    "values": 10,
    "bytes": 0,
    "has_full_blocks": False,
    "shared_bytes": 0,
}
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

    def __init__(self, directory: Path, cache: Path) -> None:
        self._library = compiled_shapes(_SOURCE, directory, cache)
        self._found = Buffer.poisoned([len(_FIELDS)], torch.int64)

    def __call__(
        self, rows: int, groups: int, length: int, vector: int, packed: bool, most_items: int = 2, **asked: Any
    ) -> dict[str, int]:
        """A launch for segments of `length` elements: its fields by name, items 0 where the row does not fit.

        Without has_full_blocks a kernel with column sums has no instance for full blocks; one without them always has.
        """
        values = _DEFAULTS | {"most_items": most_items} | asked
        assert values.keys() == _DEFAULTS.keys()
        values["schedule"] = SCHEDULES.index(values["schedule"])
        values["has_full_blocks"] = values["has_full_blocks"] or values["sums"] == 0
        values["bytes"] = values["bytes"] or 16 // vector
        self._library.call("shape", vector, self._found, *map(int, (rows, groups, length, packed, *values.values())))
        return dict(zip(_FIELDS, self._found.tensor().tolist(), strict=True))

    def unaligned_doubles(self, *, sums: int, constants: int, values: int, bytes: int) -> bool:
        """Whether threads of a long segment without vectors may have two of them."""
        return bool(self._library.call_int64("unaligned_doubles", sums, constants, values, bytes))

    def can_have_full_vector(self, length: int, *, again: int, packed: bool) -> bool:
        """Whether threads with column sums may have eight elements of 16 bits of a segment."""
        return bool(self._library.call_int64("can_have_full_vector", again, int(packed), length, 8))

    def positions(self, threads: int, lanes: int, segments: int, rows: int) -> list[list[int]]:
        """The position of each thread of a block: whether it is active, its row, segment, lane and index."""
        found = Buffer.poisoned([threads, 5], torch.int32)
        self._library.call("positions", threads, found, lanes, segments, rows)
        return found.tensor().tolist()
