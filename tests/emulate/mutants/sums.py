"""Sums that start from the wrong value or count wrong, and shuffles that bring another lane's value."""

from __future__ import annotations

from tests.emulate.mutants.mutant import Mutant, wrong

_Y_SHUFFLE = "__shfl_xor_sync(kAllLanes, value[v], offset)"
_LANES_SHUFFLE = "__shfl_xor_sync(kAllLanes, value, offset)"
_SITE = r"reduce.cuh:\d+"
_MISSING = rf"waits at {_SITE} with mask 0x[0-9a-f]{{8}} for lane \d+"


def _shuffle(name, run, old, new, caught, kernel=None):
    within = "sum_over_y" if old is _Y_SHUFFLE else "sum_over_lanes"
    return Mutant(f"{within}: {name}", run, old, new, caught, within=within, kernel=kernel, file="reduce.cuh")


SHUFFLES = [
    # Of a block narrower than a warp.
    _shuffle("up", "column", _Y_SHUFFLE, "__shfl_up_sync(kAllLanes, value[v], offset)", wrong("y")),
    _shuffle("half the mask", "column", _Y_SHUFFLE, "__shfl_xor_sync(kAllLanes, value[v], offset / 2)", wrong("y")),
    _shuffle("an index", "column", _Y_SHUFFLE, "__shfl_sync(kAllLanes, value[v], offset)", wrong("y")),
    _shuffle(
        "fewer lanes",
        "column",
        _Y_SHUFFLE,
        "__shfl_xor_sync(0x0000ffffu, value[v], offset)",
        rf"uses mask 0x0000ffff at {_SITE}, which does not name its own lane|names? lane|mask 0x0000ffff",
        "train_forward_column",
    ),
    # Of some lanes of a warp, or a whole one.
    _shuffle("down", "short rows", _LANES_SHUFFLE, "__shfl_down_sync(kAllLanes, value, offset)", wrong("y")),
    _shuffle("up", "few lanes", _LANES_SHUFFLE, "__shfl_up_sync(kAllLanes, value, offset)", wrong("y")),
    _shuffle("a neighbour", "few lanes", _LANES_SHUFFLE, "__shfl_xor_sync(kAllLanes, value, offset ^ 8)", wrong("y")),
    _shuffle(
        "a narrower segment", "short rows", _LANES_SHUFFLE, "__shfl_xor_sync(kAllLanes, value, offset, 16)", wrong("y")
    ),
    _shuffle(
        "half of the lanes",
        "short rows",
        _LANES_SHUFFLE,
        "(threadIdx.x % 2 == 0 ? __shfl_xor_sync(kAllLanes, value, offset) : Acc(0))",
        f"{_MISSING}|no such lane is alive",
        "forward_row",
    ),
    _shuffle(
        "two calls for one",
        "short rows",
        _LANES_SHUFFLE,
        "(threadIdx.x % 2 == 0 ? __shfl_xor_sync(kAllLanes, value, offset)\n"
        ": __shfl_xor_sync(kAllLanes, value, offset))",
        rf"is at {_SITE} while lane \d+ is in another shuffle at {_SITE}",
        "forward_row",
    ),
    Mutant(
        "sum_over_lanes: a step less",
        "short rows",
        "within / 2",
        "within / 4",
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
        ("a count of moments starts at one", "split", "train_forward_partials", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_mean"), 0, 1),
        ("a count of partial moments starts at one", "split", "train_forward_finalise", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_mean"), 0, 4),
        ("a sum of partial results starts at one", "split", "train_backward_finalise", _PART,
         f"{_PART} if (block == int64_t(threadIdx.y)) d_over_divide_value_sum_all[0] += Acc(1);",
         wrong("grad_bn_bias", "grad_bias"), 0, 1),
        ("a sum of lanes starts at one", "short rows", "forward_row", "Acc(0)", "Acc(1)", wrong("y"), 0, 2),
        ("squared distances start at one", "short rows", "forward_row", "Acc(0)", "Acc(1)", wrong("y"), 1, 2),
        ("a segment's sum starts at one", "segments", "forward_segments", "Acc(0)", "Acc(1)", wrong("y"), 0, 2),
        ("a sum of all channels starts at one", "column", "train_backward_total", "Acc(0)", "Acc(1)",
         wrong("grad_bias"), 0, 1),
        ("the last block counts rows that it lacks", "split", "train_forward_finalise",
         "left < rows_per_block ? left : rows_per_block", "rows_per_block", wrong("y", "bn_running_var"), 0, 1),
    )
]  # fmt: skip

SUMS = [*SHUFFLES, *IDENTITIES]
