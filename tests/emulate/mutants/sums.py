"""Sums that miss something or count it twice, and shuffles that bring another lane's value."""

from __future__ import annotations

from tests.emulate.mutants.mutant import EARLY, HEADER_OF, RACE, REDUCTION_SITE, Mutant, nan, wrong

_COLUMN_SHUFFLE = "__shfl_xor_sync(kAllLanes, arrays[i / N][i % N], offset)"
_LANES_SHUFFLE = "__shfl_xor_sync(kAllLanes, own, offset)"
_SITE = REDUCTION_SITE
_MISSING = rf"waits at {_SITE} with mask 0x[0-9a-f]{{8}} for lane \d+"


def _reduce(within, cases):
    return [
        Mutant(f"{within}, {run}: {name}", run, HEADER_OF[within], within, old, new, caught, *rest)
        for name, run, old, new, caught, *rest in cases
    ]


SHUFFLES = [
    # Of a block narrower than a warp.
    *_reduce("sum_over_rows_of_warp", (
        ("up", "column", _COLUMN_SHUFFLE, "__shfl_up_sync(kAllLanes, arrays[i / N][i % N], offset)", wrong("y")),
        ("half the mask", "column", _COLUMN_SHUFFLE, _COLUMN_SHUFFLE.replace("offset", "offset / 2"), wrong("y")),
        ("an index", "column", _COLUMN_SHUFFLE, "__shfl_sync(kAllLanes, arrays[i / N][i % N], offset)", wrong("y")),
        ("fewer lanes", "column", _COLUMN_SHUFFLE, _COLUMN_SHUFFLE.replace("kAllLanes", "0x0000ffffu"),
         rf"uses mask 0x0000ffff at {_SITE}, which does not name its own lane|names? lane|mask 0x0000ffff",
         "column_kernel"),
        ("a step less", "column", "offset >= int(blockDim.x)", "offset > int(blockDim.x)",
         wrong("y", "bn_running_mean")),
    )),
    # Of some lanes of a warp, or a whole one.
    *_reduce("reduce_in_warp", (
        ("down", "short rows", _LANES_SHUFFLE, "__shfl_down_sync(kAllLanes, own, offset)", wrong("y")),
        ("up", "few lanes", _LANES_SHUFFLE, "__shfl_up_sync(kAllLanes, own, offset)", wrong("y")),
        ("a neighbour", "few lanes", _LANES_SHUFFLE, _LANES_SHUFFLE.replace("offset", "offset ^ 8"), wrong("y")),
        ("a narrower segment", "short rows", _LANES_SHUFFLE, _LANES_SHUFFLE.replace("offset", "offset, 16"),
         wrong("y")),
        ("half of the lanes", "short rows", _LANES_SHUFFLE, f"(threadIdx.x % 2 == 0 ? {_LANES_SHUFFLE} : Acc(0))",
         f"{_MISSING}|no such lane is alive", "row_kernel"),
        ("two calls for one", "short rows", _LANES_SHUFFLE,
         f"(threadIdx.x % 2 == 0 ? {_LANES_SHUFFLE}\n: {_LANES_SHUFFLE})",
         rf"is at {_SITE} while lane \d+ is in another shuffle at {_SITE}", "row_kernel"),
        ("a step less", "short rows", "(offset >= lanes)", "(2 * offset >= lanes)", wrong("y")),
        ("a step more", "few lanes", "(offset >= lanes)", "(offset > lanes)", wrong("y")),
    )),
    *_reduce("reduce_over_block", (
        ("half of a warp", "segments", "reduce_in_warp<Op>(32, first, more...)",
         "reduce_in_warp<Op>(16, first, more...)",
         wrong("y")),
        ("half of a total", "column", "reduce_in_warp<Op>(32, first, more...)",
         "reduce_in_warp<Op>(16, first, more...)",
         wrong("grad_bias")),
    )),
]  # fmt: skip

_DOWN = "__shfl_down_sync(kAllLanes, own, offset)"
_FIRST_LANE = "__shfl_sync(kAllLanes, own, threadIdx.x - lane)"

# Lanes that are no power of two: nine of them, three times in a warp.
NINES = [
    *_reduce("reduce_in_lanes", (
        ("all lanes take another's", "odd rows", "offset < left", "true", wrong("y")),
        ("the last lane is not added", "odd rows", "offset < left", "offset < left - 1", wrong("y")),
        ("a lane of the next segment is added", "odd rows", "offset < left", "offset <= left", wrong("y")),
        ("from above", "odd rows", _DOWN, _DOWN.replace("down", "up"), wrong("y")),
        ("the sum of the warp's first segment for all", "odd rows", _FIRST_LANE,
         _FIRST_LANE.replace("threadIdx.x - lane", "0"), wrong("y")),
        ("a sum that only the first lane has", "odd rows", _FIRST_LANE, _FIRST_LANE.replace(" - lane", ""), wrong("y")),
        ("the second lane's sum", "odd rows", _FIRST_LANE, _FIRST_LANE.replace("- lane", "- lane + 1"), wrong("y")),
        ("butterflies", "odd rows", "(lanes & (lanes - 1)) != 0", "false", wrong("y")),
        ("a step less", "odd rows", "offset == 8 && lanes < 8", "offset == 8", wrong("y")),
        ("the lane of another thread", "odd rows", "uint16_t(threadIdx.x % 32)", "uint16_t(threadIdx.x / 2 % 32)",
         wrong("grad_gemm_product")),
    )),
    # What a warp has left would be a part of the next warp's first segment.
    *_reduce("position_of", (
        ("a segment too many in a warp", "odd rows", "place < per_warp", "true",
         rf"{EARLY}|{RACE}|which (another|thread)|{wrong('grad_gemm_bias')}"),
        ("the segments of a warp overlap", "odd rows", "thread / 32 * per_warp + place",
         "thread / 32 * (per_warp - 1) + place", rf"{RACE}|which (another|thread)|{nan('y')}"),
        # The first row of the next iteration or block.
        ("a row too many", "three groups", "row < rows_per_iteration", "true", r"which (another|thread)"),
    )),
    # Six of twelve rows, three, two.
    *_reduce("sum_over_rows", (
        ("an odd row is lost", "odd rows", "(rows + 1) / 2", "rows / 2", wrong("grad_gemm_bias")),
        ("a row that was not written", "odd rows", "position.row + half < rows", "position.row + half <= rows", EARLY),
        ("another segment's sums", "odd rows", "half * threads", "half * threads + 1",
         rf"{EARLY}|{wrong('grad_gemm_bias')}"),
    )),
    Mutant("odd rows: the sums of one row for all", "odd rows", "kernels/row_channels.cuh", "store",
           "rows_per_iteration == 1", "true", wrong("grad_group_norm_bias", "grad_group_norm_weight")),
]  # fmt: skip

_SLOT = "shared[(i / N * width + threadIdx.x) * N + i % N]"

# One thread adds up a sum for all.
EXCHANGES = [
    *_reduce("sum_over_y", (
        ("a warp less", "column", "other < warp_count()", "other < warp_count() - 1", wrong("y")),
        ("the last sum is not added up", "column", "i < sums", "i < sums - 1", wrong("y")),
        ("a sum that nobody stores", "column", "shared[i] = total;", "static_cast<void>(total);", wrong("y")),
        ("the first array for all", "column", _SLOT, "shared[threadIdx.x * N + i % N]", wrong("grad_bn_weight")),
        ("a neighbour's sum", "column", _SLOT, _SLOT.replace("i % N", "(i + 1) % N"), wrong("y")),
    )),
    *_reduce("sum_of", (("a sum of some elements", "short rows", "N / 2", "N / 4", wrong("y")),)),
    *_reduce("reduce_over_warps", (
        ("a warp less", "long rows", "warp < warp_count()", "warp + 1 < warp_count()", wrong("grad_gemm_product")),
    )),
]  # fmt: skip

# What was never loaded may be anything.
_GARBAGE = f"{nan('y')}|{wrong('y')}"

# The row that is used while the next one is on its way.
ROWS = [
    Mutant(f"{run}: {name}", run, "kernels/row.cuh", "row_block", old, new, caught, None, nth, of)
    for name, run, old, new, caught, nth, of in (
        ("the first row is not loaded", "long rows", "load_row(at, item, row);", "", _GARBAGE, 0, 1),
        ("the next row is not loaded", "long rows",
         "load_row(at + g.at_step, item + g.item_step, row + g.step);", "", wrong("y"), 0, 1),
        ("the last row is not loaded", "long rows", "base + g.step < end", "base + 2 * g.step < end", wrong("y"),
         0, 1),
        ("the row after the next is loaded", "long rows", "at + g.at_step", "at + 2 * g.at_step", wrong("y"), 0, 1),
        ("a row is taken again", "long rows", "at += g.at_step", "at += 0",
         rf"{nan('y')}|, \d+ bytes past its end", 0, 1),
        ("statistics of a row are stored again", "long rows", "item += g.item_step", "item += 0",
         nan("grad_gemm_product"), 0, 1),
        ("a row is skipped", "long rows", "base += g.step", "base += 2 * g.step", nan("y"), 0, 1),
        ("one vector for another", "short rows", "in[i]", "in[0]", wrong("y"), 1, 2),
        ("terms of one vector in the place of another's", "short rows", "terms[kField][i][v] = value;",
         "terms[kField][0][v] = value;", nan("y"), 0, 1),
    )
]  # fmt: skip

SEGMENT = [
    Mutant(f"{run}: {name}", run, "kernels/row_reduction.cuh", "row_reduction_kernel", old, new, wrong("y"), None, nth,
           of)
    for name, run, old, new, nth, of in (
        ("a vector of a batch for another", "longer segments", "in[u]", "in[0]", 3, 4),
        ("a batch is skipped", "longest segments", "base += kRowReductionVectors * stride",
         "base += 2 * kRowReductionVectors * stride", 0, 1),
        ("a block has what another one has", "segments of a cluster", "(blockIdx.z * lanes + lane) * kVec",
         "lane * kVec", 0, 1),
        ("a column's constants of a batch for another", "longest segments", "channel_in[u][c++]", "channel_in[0][c++]",
         0, 1),
    )
] + [
    Mutant("short segments: half of the lanes", "short segments", "row_reduction_sums.cuh", "reduce",
           "reduce_in_warp<Op>(lanes, first, more...)", "reduce_in_warp<Op>(lanes / 2, first, more...)", wrong("y")),
    *(
        Mutant(f"short segments: {name}", "short segments", "kernels/row_reduction.cuh", "row_reduction_kernel",
               old, new, "which thread .* has written since the last barrier", "row_reduction_kernel")
        for name, old, new in (
            ("all of a block have one", "first + threadIdx.x / lanes", "first"),
            ("lanes behind the last one store it, too", "lane == 0 && blockIdx.z == 0 && exists", "lane == 0"),
        )
    ),
]  # fmt: skip

SUMS = [*SHUFFLES, *NINES, *EXCHANGES, *ROWS, *SEGMENT]
