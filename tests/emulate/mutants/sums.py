"""Sums that start from the wrong value or count wrong, and shuffles that bring another lane's value."""

from __future__ import annotations

from tests.emulate.mutants.mutant import EARLY, RACE, Mutant, nan, wrong

_COLUMN_SHUFFLE = "__shfl_xor_sync(kAllLanes, arrays[i / N][i % N], offset)"
_LANES_SHUFFLE = "__shfl_xor_sync(kAllLanes, *values[i], offset)"
_SITE = r"reduce.cuh:\d+"
_MISSING = rf"waits at {_SITE} with mask 0x[0-9a-f]{{8}} for lane \d+"


def _shuffle(name, run, old, new, caught, kernel=None):
    within = "sum_over_rows_of_warp" if old is _COLUMN_SHUFFLE else "sum_in_warp"
    return Mutant(f"{within}: {name}", run, old, new, caught, within=within, kernel=kernel, file="reduce.cuh")


SHUFFLES = [
    # Of a block narrower than a warp.
    _shuffle("up", "column", _COLUMN_SHUFFLE, "__shfl_up_sync(kAllLanes, arrays[i / N][i % N], offset)", wrong("y")),
    _shuffle(
        "half the mask",
        "column",
        _COLUMN_SHUFFLE,
        "__shfl_xor_sync(kAllLanes, arrays[i / N][i % N], offset / 2)",
        wrong("y"),
    ),
    _shuffle("an index", "column", _COLUMN_SHUFFLE, "__shfl_sync(kAllLanes, arrays[i / N][i % N], offset)", wrong("y")),
    _shuffle(
        "fewer lanes",
        "column",
        _COLUMN_SHUFFLE,
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
        "sum_in_warp: a step less",
        "short rows",
        "(offset >= lanes)",
        "(2 * offset >= lanes)",
        wrong("y"),
        within="sum_in_warp",
        file="reduce.cuh",
    ),
    Mutant(
        "sum_in_warp: a step more",
        "few lanes",
        "(offset >= lanes)",
        "(offset > lanes)",
        wrong("y"),
        within="sum_in_warp",
        file="reduce.cuh",
    ),
    *(
        Mutant(
            f"sum_over_block: {name}",
            run,
            "sum_in_warp(32, first, more...)",
            "sum_in_warp(16, first, more...)",
            wrong(tensor),
            within="sum_over_block",
            file="reduce.cuh",
        )
        for name, run, tensor in (("half of a warp", "segments", "y"), ("half of a total", "column", "grad_bias"))
    ),
    Mutant(
        "sum_over_rows_of_warp: a step less",
        "column",
        "offset >= int(blockDim.x)",
        "offset > int(blockDim.x)",
        wrong("y", "bn_running_mean"),
        within="sum_over_rows_of_warp",
        file="reduce.cuh",
    ),
]

_DOWN = "__shfl_down_sync(kAllLanes, *values[i], offset)"
_FIRST_LANE = "__shfl_sync(kAllLanes, *values[i], threadIdx.x - lane)"

# Lanes that are no power of two: nine of them, three times in a warp.
NINES = [
    *(
        Mutant(f"{within}: {name}", "odd rows", old, new, caught, within=within, file="reduce.cuh")
        for within, name, old, new, caught in (
            ("sum_in_lanes", "all lanes take another's", "offset < left", "true", wrong("y")),
            ("sum_in_lanes", "the last lane is not added", "offset < left", "offset < left - 1",
             wrong("y")),
            ("sum_in_lanes", "a lane of the next segment is added", "offset < left",
             "offset <= left", wrong("y")),
            ("sum_in_lanes", "from above", _DOWN, _DOWN.replace("down", "up"), wrong("y")),
            ("sum_in_lanes", "the sum of the warp's first segment for all", _FIRST_LANE,
             _FIRST_LANE.replace("threadIdx.x - lane", "0"), wrong("y")),
            ("sum_in_lanes", "a sum that only the first lane has", _FIRST_LANE,
             _FIRST_LANE.replace("threadIdx.x - lane", "threadIdx.x"), wrong("y")),
            ("sum_in_lanes", "the second lane's sum", _FIRST_LANE,
             _FIRST_LANE.replace("- lane", "- lane + 1"), wrong("y")),
            ("sum_in_lanes", "butterflies", "(lanes & (lanes - 1)) != 0", "false", wrong("y")),
            ("sum_in_lanes", "a step less", "offset == 8 && lanes < 8", "offset == 8", wrong("y")),
            ("sum_in_lanes", "the lane of another thread", "uint16_t(threadIdx.x % 32)",
             "uint16_t(threadIdx.x / 2 % 32)", wrong("grad_gemm_product")),
            # What a warp has left would be a part of the next warp's first segment.
            ("seat_of", "a segment too many in a warp", "place < a_warp", "true",
             rf"{EARLY}|{RACE}|which (another|thread)|{wrong('grad_gemm_bias')}"),
            ("seat_of", "the segments of a warp overlap", "thread / 32 * a_warp + place",
             "thread / 32 * (a_warp - 1) + place", rf"{RACE}|which (another|thread)|{nan('y')}"),
            # Six of twelve rows, three, two.
            ("sum_over_rows", "an odd row is lost", "(rows + 1) / 2", "rows / 2", wrong("grad_gemm_bias")),
            ("sum_over_rows", "a row that was not written", "seat.row + half < rows", "seat.row + half <= rows",
             EARLY),
            ("sum_over_rows", "another segment's sums", "half * slots", "half * slots + 1",
             rf"{EARLY}|{wrong('grad_gemm_bias')}"),
        )
    ),
    # The first row of the next turn or block.
    Mutant(
        "seat_of: a row too many",
        "three groups",
        "row < height",
        "true",
        r"which (another|thread)",
        within="seat_of",
        file="reduce.cuh",
    ),
    Mutant(
        "backward_row: the sums of one row for all",
        "odd rows",
        "height > 1",
        "false",
        wrong("grad_group_norm_bias", "grad_group_norm_weight"),
        within="backward_row",
        of=2,
    ),
]  # fmt: skip

_PART = "d_over_divide_value_sum_all[0] += part[b][0];"

# No kernel takes a maximum or minimum over elements: what a sum or a count starts from is 0 everywhere.
IDENTITIES = [
    Mutant(name, run, old, new, caught, within=kernel, nth=nth, of=of)
    for name, run, kernel, old, new, caught, nth, of in (
        ("a count without rows is one", "few rows", "train_forward_column", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_var"), 0, 3),
        ("a count of moments without rows is one", "few rows, split", "train_forward_partials", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_mean"), 0, 1),
        ("a count of partial moments starts at one", "split", "train_forward_finalise", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_mean"), 0, 7),
        ("a sum of partial results starts at one", "split", "train_backward_finalise", _PART,
         f"{_PART} if (block == int64_t(threadIdx.y)) d_over_divide_value_sum_all[0] += Acc(1);",
         wrong("grad_bn_bias", "grad_bias"), 0, 1),
        # Not the sum for the mean: distances to any value are as good, for the rest of them is taken out again.
        ("a rest of lanes starts at one", "short rows", "forward_row", "Acc(0)", "Acc(1)", wrong("y"), 6, 8),
        ("squared distances start at one", "short rows", "forward_row", "Acc(0)", "Acc(1)", wrong("y"), 5, 8),
        ("a segment's thread counts one value more", "segments", "forward_segments", "Acc(seen)", "Acc(seen + 1)",
         wrong("y"), 0, 2),
        ("a sum of all channels starts at one", "column", "train_backward_total", "Acc(0)", "Acc(1)",
         wrong("grad_bias"), 0, 1),
    )
]  # fmt: skip


def _exchange(name, run, old, new, caught, within="sum_over_y", nth=0, of=1):
    return Mutant(f"{within}: {name}", run, old, new, caught, within=within, file="reduce.cuh", nth=nth, of=of)


_SLOT = "shared[(i / N * width + threadIdx.x) * N + i % N]"

# One thread adds up a sum for all.
EXCHANGES = [
    _exchange("a warp less", "column", "other < warp_count()", "other < warp_count() - 1", wrong("y")),
    _exchange("the last sum is not added up", "column", "i < sums", "i < sums - 1", wrong("y")),
    _exchange("a sum that nobody stores", "column", "shared[i] = total;", "static_cast<void>(total);", wrong("y")),
    _exchange("the first array for all", "column", _SLOT, "shared[threadIdx.x * N + i % N]", wrong("grad_bn_weight")),
    _exchange("a neighbour's sum", "column", _SLOT, _SLOT.replace("i % N", "(i + 1) % N"), wrong("y")),
    _exchange("a sum of some elements", "short rows", "N / 2", "N / 4", wrong("y"), "sum_of"),
]  # fmt: skip

_FIRST_ROWS = "bn_moments_shifted[v].pilot = matmul_product_v;"
_ROWS = "(own + blockDim.y - 1) / blockDim.y"
_LACKS = "lacks(first + threadIdx.y + (mine - 1) * blockDim.y, v)"
_WAYS = (
    # The scenario and the kernel, what is true of a first row and of others too, what a row is read as and the first,
    # what a thread counts as its rows and all rows, and how often the reading is there, the last one of them.
    ("column", "train_forward_column", "here.at == begin.at", "true", "matmul_product_tile + here.at",
     "matmul_product_tile + begin.at", f"Acc({_ROWS})", "Acc(own)", 1, ""),
    ("split", "train_forward_partials", "u == 0 && line == first + threadIdx.y", "line == first + threadIdx.y",
     "matmul_product_in[u]", "matmul_product_in[0]", f"Acc(mine - {_LACKS})", "Acc(own)", 2, ", split"),
)  # fmt: skip
_SQUARES = "group_norm_moments_v.m2 += sum_of(group_norm_moments_squares);"

MOMENTS = [
    *(
        Mutant(f"{kernel}: {name}", run, old, new, caught, within=kernel, nth=of - 1, of=of)
        for way, kernel, is_first, is_other, row, first_row, count, all_rows, rows_of, split in _WAYS
        for name, run, old, new, caught, of in (
            ("no pilot", f"far from zero{split}", _FIRST_ROWS, "static_cast<void>(0);",
             wrong("y", "bn_running_var"), 1),
            ("every row is a pilot", way, is_first, is_other, wrong("y", "bn_running_var"), 1),
            ("a thread counts a row less", way, _ROWS, "own / blockDim.y", wrong("y", "bn_running_var"), 1),
            ("every thread counts all rows", way, count, all_rows, wrong("y", "bn_running_var"), 1),
            ("the first row for another", way, row, first_row, wrong("y", "bn_running_mean"), rows_of),
        )
    ),
    *(
        Mutant(f"{within}: {name}", run, old, new, caught, within=within, file="reduce.cuh", nth=nth, of=of)
        for within, name, run, old, new, caught, nth, of in (
            ("moments_of", "the pilot's distance stays", "column", "sums.sum * distance", "Acc(0)",
             wrong("y", "bn_running_var"), 0, 1),
            ("moments_of", "the pilot's distance stays, split", "split", "sums.sum * distance",
             "Acc(0)", wrong("y", "bn_running_var"), 0, 1),
            ("moments_of", "the pilot is the mean", "split", "sums.pilot + distance", "sums.pilot",
             wrong("y", "bn_running_mean"), 0, 1),
            ("moments_of", "no rows", "few rows", "if (count == Acc(0)) return {Acc(0), Acc(0)};",
             "static_cast<void>(0);", nan("y"), 0, 1),
            ("moments_of_parts", "each thread has one value", "column", "distances[v] * distance",
             "distance * distance", wrong("y", "bn_running_var"), 0, 1),
            ("moments_of_parts", "the rest of one thread's distances", "column", "sum(m2, distances);",
             "sum(m2);", wrong("y", "bn_running_mean"), 0, 1),
            ("moments_of_parts", "each warp has one value", "long rows", "distances[v] * distance",
             "distance * distance", wrong("y"), 0, 1),
            ("moments_over_warps", "as many values as the first warp", "long rows", "counts[warp]", "counts[0]",
             wrong("y"), 0, 1),
            ("moments_over_warps", "a warp less", "long rows", "warp < warp_count()", "warp + 1 < warp_count()",
             wrong("y"), 0, 1),
            ("moments_over_warps", "the counts are not of its values", "long rows", "return inverse_count;",
             "return inverse_count * Acc(2);", wrong("y"), 0, 1),
            ("sum_over_warps", "a warp less", "long rows", "warp < warp_count()", "warp + 1 < warp_count()",
             wrong("grad_gemm_product"), 0, 1),
            ("moments_of_parts", "each thread has one value, in a block", "segments",
             "distances[v] * distance", "distance * distance", wrong("y"), 0, 1),
            ("add_value", "the value for its distance", "far from zero", "sums.squares += distance * distance;",
             "sums.squares += distance * value;", wrong("y", "bn_running_var"), 0, 1),
            ("add_values", "each block has one value", "more odd rows, split", "sums.sum += count * distance",
             "sums.sum += distance", wrong("y", "bn_running_mean"), 0, 1),
            ("add_values", "without the distance of the means", "more odd rows, split",
             "count * distance * distance", "Acc(0)", wrong("y", "bn_running_var"), 0, 1),
            ("add_values", "the means alone", "more rows, split", "part.m2 + count * distance * distance",
             "count * distance * distance",
             wrong("y", "bn_running_var"), 0, 1),
        )
    ),
]  # fmt: skip

# How many rows are behind each partial result.
BEHIND = [
    Mutant(f"train_forward_finalise: {name}", run, old, new, caught, within="train_forward_finalise")
    for name, run, old, new, caught in (
        ("the last block counts rows that it lacks", "split", "left < lines_per_block ? left : lines_per_block",
         "lines_per_block", wrong("y", "bn_running_var")),
        ("the last line's rows are all there", "odd, split", "turn < rows - full_lines * period", "1",
         wrong("y", "bn_running_var")),
        ("the last line's rows are all missing", "odd, split", "turn < rows - full_lines * period", "0",
         wrong("y", "bn_running_var")),
        ("a row of a line for a block", "more odd rows, split", "threadIdx.y / period * lines_per_block",
         "threadIdx.y * lines_per_block", wrong("y", "bn_running_var")),
        ("all threads begin with the first block", "two odd blocks, split", "threadIdx.y / period * lines_per_block",
         "0", wrong("y", "bn_running_var")),
        ("a thread has results of lines that follow each other", "more odd rows, split", "blockDim.y / period",
         "blockDim.y", wrong("y", "bn_running_var")),
        ("all partial results of a thread are of one block", "more odd rows, split", "left -= apart;", "",
         wrong("y", "bn_running_var")),
    )
]  # fmt: skip

SEGMENT = [
    Mutant(f"forward_segments: {name}", run, old, new, wrong("y"), within="forward_segments")
    for name, run, old, new in (
        ("a vector of a batch for another", "longer segments", "gemm_product_in[u][v]", "gemm_product_in[0][v]"),
        ("a batch is skipped", "longest segments", "base += kVectorsAtOnce * apart",
         "base += 2 * kVectorsAtOnce * apart"),
        ("a block has what another one has", "segments of a cluster",
         "(blockIdx.z * blockDim.x + threadIdx.x) * kVec", "int(threadIdx.x) * kVec"),
        ("a column's constant of a batch for another", "longest segments",
         "widen_values(gemm_bias_in[u], kAddsBias<T>, gemm_bias_v);",
         "widen_values(gemm_bias_in[0], kAddsBias<T>, gemm_bias_v);"),
        ("every vector has a pilot", "longer segments", "seen == 0", "true"),
        ("no pilot", "longer segments, far from zero", "seen == 0", "false"),
        ("a vector has one value", "longer segments", "seen += columns[u].size();", "++seen;"),
    )
]  # fmt: skip

# What was never loaded may be anything.
_GARBAGE = f"{nan('y')}|{wrong('y')}"

# The row that is used while the next one is on its way.
ROWS = [
    Mutant(f"forward_row: {name}", run, old, new, caught, within="forward_row", nth=nth, of=of)
    for name, run, old, new, caught, nth, of in (
        ("the first row is not loaded", "long rows", "load_row(at, item);", "",
         _GARBAGE, 0, 1),
        ("the next row is not loaded", "long rows",
         "if (base + step < rows) load_row(at + at_step, item + item_step);", "", wrong("y"), 0, 1),
        ("the last row is not loaded", "long rows", "base + step < rows", "base + 2 * step < rows", wrong("y"), 0, 1),
        ("a warp has as many values as the group", "long rows",
         "inverse_part = part > Acc(0) ? Acc(1) / part : Acc(0);", "inverse_part = inverse_length;", wrong("y"), 0, 1),
        ("a warp has whole vectors", "long odd rows", "columns[i].size()", "(columns[i].any() ? kVec : 0)",
         wrong("y"), 0, 1),
        ("the row after the next is loaded", "long rows", "at + at_step", "at + 2 * at_step",
         wrong("y"), 0, 1),
        ("a row is taken again", "long rows", "at += at_step", "at += 0", nan("y"), 0, 1),
        ("statistics of a row are stored again", "long rows", "item += item_step", "item += 0",
         nan("grad_gemm_product"), 0, 1),
        ("a row is skipped", "long rows", "base += step", "base += 2 * step", nan("y"), 0, 1),
        ("lanes without an element count", "short rows", f"if (active) {_SQUARES}", _SQUARES, wrong("y"), 0, 1),
        ("one vector is held in the place of another", "short rows", "gemm_held[i][v]", "gemm_held[0][v]",
         wrong("y"), 2, 3),
    )
]  # fmt: skip

SUMS = [*SHUFFLES, *NINES, *IDENTITIES, *EXCHANGES, *MOMENTS, *BEHIND, *SEGMENT, *ROWS]
