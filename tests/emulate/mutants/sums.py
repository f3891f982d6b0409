"""Sums that start from the wrong value or count wrong, and shuffles that bring another lane's value."""

from __future__ import annotations

from tests.emulate.mutants.mutant import Mutant, nan, wrong

_Y_SHUFFLE = "__shfl_xor_sync(kAllLanes, arrays[i / N][i % N], offset)"
_LANES_SHUFFLE = "__shfl_xor_sync(kAllLanes, *values[i], offset)"
_SITE = r"reduce.cuh:\d+"
_MISSING = rf"waits at {_SITE} with mask 0x[0-9a-f]{{8}} for lane \d+"


def _shuffle(name, run, old, new, caught, kernel=None):
    within = "sum_over_y" if old is _Y_SHUFFLE else "sum_over_lanes"
    return Mutant(f"{within}: {name}", run, old, new, caught, within=within, kernel=kernel, file="reduce.cuh")


SHUFFLES = [
    # Of a block narrower than a warp.
    _shuffle("up", "column", _Y_SHUFFLE, "__shfl_up_sync(kAllLanes, arrays[i / N][i % N], offset)", wrong("y")),
    _shuffle(
        "half the mask",
        "column",
        _Y_SHUFFLE,
        "__shfl_xor_sync(kAllLanes, arrays[i / N][i % N], offset / 2)",
        wrong("y"),
    ),
    _shuffle("an index", "column", _Y_SHUFFLE, "__shfl_sync(kAllLanes, arrays[i / N][i % N], offset)", wrong("y")),
    _shuffle(
        "fewer lanes",
        "column",
        _Y_SHUFFLE,
        "__shfl_xor_sync(0x0000ffffu, arrays[i / N][i % N], offset)",
        rf"uses mask 0x0000ffff at {_SITE}, which does not name its own lane|names? lane|mask 0x0000ffff",
        "train_forward_column",
    ),
    # Of some lanes of a warp, or a whole one.
    _shuffle("down", "short rows", _LANES_SHUFFLE, "__shfl_down_sync(kAllLanes, *values[i], offset)", wrong("y")),
    _shuffle("up", "few lanes", _LANES_SHUFFLE, "__shfl_up_sync(kAllLanes, *values[i], offset)", wrong("y")),
    _shuffle(
        "a neighbour", "few lanes", _LANES_SHUFFLE, "__shfl_xor_sync(kAllLanes, *values[i], offset ^ 8)", wrong("y")
    ),
    _shuffle(
        "a narrower segment",
        "short rows",
        _LANES_SHUFFLE,
        "__shfl_xor_sync(kAllLanes, *values[i], offset, 16)",
        wrong("y"),
    ),
    _shuffle(
        "half of the lanes",
        "short rows",
        _LANES_SHUFFLE,
        "(threadIdx.x % 2 == 0 ? __shfl_xor_sync(kAllLanes, *values[i], offset) : Acc(0))",
        f"{_MISSING}|no such lane is alive",
        "forward_row",
    ),
    _shuffle(
        "two calls for one",
        "short rows",
        _LANES_SHUFFLE,
        "(threadIdx.x % 2 == 0 ? __shfl_xor_sync(kAllLanes, *values[i], offset)\n"
        ": __shfl_xor_sync(kAllLanes, *values[i], offset))",
        rf"is at {_SITE} while lane \d+ is in another shuffle at {_SITE}",
        "forward_row",
    ),
    Mutant(
        "sum_over_lanes: a step less",
        "short rows",
        "offset < lanes",
        "2 * offset < lanes",
        wrong("y"),
        within="sum_over_lanes",
        file="reduce.cuh",
    ),
    Mutant(
        "sum_over_lanes: a step more",
        "few lanes",
        "offset < lanes",
        "offset <= lanes",
        wrong("y"),
        within="sum_over_lanes",
        file="reduce.cuh",
    ),
    Mutant(
        "sum_over_y: a step less",
        "column",
        "offset >= width",
        "offset > width",
        wrong("y", "bn_running_mean"),
        within="sum_over_y",
        file="reduce.cuh",
    ),
]

_PART = "d_over_divide_value_sum_all[0] += part[0 * channels];"

# No kernel takes a maximum or minimum over elements: what a sum or a count starts from is 0 everywhere.
IDENTITIES = [
    Mutant(name, run, old, new, caught, within=kernel, nth=nth, of=of)
    for name, run, kernel, old, new, caught, nth, of in (
        ("a count without rows is one", "few rows", "train_forward_column", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_var"), 0, 3),
        ("a count of moments without rows is one", "few rows, split", "train_forward_partials", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_mean"), 0, 1),
        ("a count of partial moments starts at one", "split", "train_forward_finalise", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_mean"), 0, 6),
        ("a sum of partial results starts at one", "split", "train_backward_finalise", _PART,
         f"{_PART} if (block == int64_t(threadIdx.y)) d_over_divide_value_sum_all[0] += Acc(1);",
         wrong("grad_bn_bias", "grad_bias"), 0, 1),
        # Not the sum for the mean: distances to any value are as good, for the rest of them is taken out again.
        ("a rest of lanes starts at one", "short rows", "forward_row", "Acc(0)", "Acc(1)", wrong("y"), 2, 3),
        ("squared distances start at one", "short rows", "forward_row", "Acc(0)", "Acc(1)", wrong("y"), 1, 3),
        ("a segment's rest starts at one", "segments", "forward_segments", "Acc(0)", "Acc(1)", wrong("y"), 2, 3),
        ("a sum of all channels starts at one", "column", "train_backward_total", "Acc(0)", "Acc(1)",
         wrong("grad_bias"), 0, 1),
        ("the last block counts rows that it lacks", "split", "train_forward_finalise",
         "left < rows_per_block ? left : rows_per_block", "rows_per_block", wrong("y", "bn_running_var"), 0, 1),
    )
]  # fmt: skip


def _exchange(name, run, old, new, caught, within="sum_over_y", nth=0, of=1):
    return Mutant(f"{within}: {name}", run, old, new, caught, within=within, file="reduce.cuh", nth=nth, of=of)


_SLOT = "shared[(i / N * width + threadIdx.x) * N + i % N]"

# One thread adds up a sum, or merges a column, for all.
EXCHANGES = [
    _exchange("a warp less", "column", "other < warp_count()", "other < warp_count() - 1", wrong("y")),
    _exchange("the last sum is not added up", "column", "i < sums", "i < sums - 1", wrong("y")),
    _exchange("a sum that nobody stores", "column", "shared[i] = total;", "static_cast<void>(total);", wrong("y")),
    _exchange("the first array for all", "column", _SLOT, "shared[threadIdx.x * N + i % N]", wrong("grad_bn_weight")),
    _exchange("a neighbour's sum", "column", _SLOT, _SLOT.replace("i % N", "(i + 1) % N"), wrong("y")),
    _exchange("a row less", "split", "row < int(blockDim.y)", "row < int(blockDim.y) - 1", wrong("y"), "merge_over_y"),
    _exchange("the last column is not merged", "split", "column < columns", "column < columns - 1", wrong("y"),
              "merge_over_y"),
    _exchange("counts are not added", "split", "all_count += other_count;", "static_cast<void>(other_count);",
              wrong("y"), "merge_over_y"),
    _exchange("another row's count", "split", "counts[row * blockDim.x + column / N]", "counts[column / N]",
              wrong("y"), "merge_over_y"),
    _exchange("another column's", "split", "m2s[threadIdx.x * N + v]", "m2s[threadIdx.x * N]", wrong("y"),
              "merge_over_y"),
    _exchange("a sum of some elements", "short rows", "N / 2", "N / 4", wrong("y"), "sum_of"),
]  # fmt: skip

_FIRST_ROWS = "bn_moments_sums[v].pilot = matmul_product;"
_ROWS = "(own + blockDim.y - 1) / blockDim.y"
_WAYS = (
    ("column", "train_forward_column", "base == first + threadIdx.y", ""),
    ("split", "train_forward_partials", "row == first + threadIdx.y", ", split"),
)
_SQUARES = "group_norm_moments.m2 += sum_of(group_norm_moments_squares);"
_ROW_AT = "base + b * step + threadIdx.y"

MOMENTS = [
    *(
        Mutant(f"{kernel}: {name}", run, old, new, caught, within=kernel)
        for way, kernel, first, split in _WAYS
        for name, run, old, new, caught in (
            ("no pilot", f"far from zero{split}", _FIRST_ROWS, "static_cast<void>(0);", wrong("y", "bn_running_var")),
            ("every row is a pilot", way, f"u == 0 && {first}", first, wrong("y", "bn_running_var")),
            ("a thread counts a row less", way, _ROWS, "own / blockDim.y", wrong("y", "bn_running_var")),
            ("every thread counts all rows", way, f"Acc({_ROWS})", "Acc(own)", wrong("y", "bn_running_var")),
            ("a row of the batch for another", way, "matmul_product_in[u][v]", "matmul_product_in[0][v]",
             wrong("y", "bn_running_mean")),
        )
    ),
    *(
        Mutant(f"{within}: {name}", run, old, new, caught, within=within, file="reduce.cuh", nth=nth, of=of)
        for within, name, run, old, new, caught, nth, of in (
            ("moments_of", "the pilot's distance stays", "column", "sums.squares - sums.sum * distance", "sums.squares",
             wrong("y", "bn_running_var"), 0, 1),
            ("moments_of", "the pilot's distance stays, split", "split", "sums.squares - sums.sum * distance",
             "sums.squares", wrong("y", "bn_running_var"), 0, 1),
            ("moments_of", "the pilot is the mean", "split", "sums.pilot + distance", "sums.pilot",
             wrong("y", "bn_running_mean"), 0, 1),
            ("moments_of", "no rows", "few rows", "if (count == Acc(0)) return {Acc(0), Acc(0)};",
             "static_cast<void>(0);", nan("y"), 0, 1),
            ("moments_over_y", "each thread has one value", "column", "distances[v] * distance",
             "distance * distance", wrong("y", "bn_running_var"), 0, 1),
            ("moments_over_y", "the rest of one thread's distances", "column", "sum_over_y<N>(shared, m2, distances);",
             "sum_over_y<N>(shared, m2);", wrong("y", "bn_running_mean"), 0, 1),
            ("add_value", "the value for its distance", "far from zero", "sums.squares += distance * distance;",
             "sums.squares += distance * value;", wrong("y", "bn_running_var"), 0, 1),
            ("merge", "means weighted by another's count", "split", "count_b / (count_a + count_b)",
             "count_a / (count_a + count_b)", wrong("y", "bn_running_mean"), 0, 1),
            ("merge", "without the distance of the means", "split", "delta * delta * count_a * share", "Acc(0)",
             wrong("y", "bn_running_var"), 0, 1),
        )
    ),
]  # fmt: skip

# The rows that a thread of the row kernel loads together.
BATCHES = [
    Mutant(f"forward_row: {name}", run, old, new, caught, within="forward_row", nth=nth, of=of)
    for name, run, old, new, caught, nth, of in (
        ("a row of a batch is used twice", "long rows", "gemm_product_in[b][i][v]", "gemm_product_in[0][i][v]",
         wrong("y"), 0, 1),
        ("a row of a batch is loaded twice", "long rows", _ROW_AT, "base + threadIdx.y", wrong("y"), 0, 2),
        ("a row of a batch is stored twice", "long rows", _ROW_AT, "base + threadIdx.y", nan("y"), 1, 2),
        ("a batch is skipped", "long rows", "base += kBatch * step", "base += 2 * kBatch * step", nan("y"), 0, 1),
        ("lanes without an element count", "short rows", f"if (active) {_SQUARES}", _SQUARES, wrong("y"), 0, 1),
        ("one vector is held in the place of another", "short rows", "gemm_held[i][v]", "gemm_held[0][v]",
         wrong("y"), 2, 3),
    )
]  # fmt: skip

SUMS = [*SHUFFLES, *IDENTITIES, *EXCHANGES, *MOMENTS, *BATCHES]
