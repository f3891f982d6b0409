"""Elements that are skipped, for each kind of store, and values that are wrong: sums, counts and shuffles."""

from __future__ import annotations

from tests.emulate.mutants.mutant import UNWRITTEN, Mutant, nan, wrong

_STORE = "store_pack(here, y_ptr, at * length, whole, y_out);"
_TILE_STORE = "store_pack(columns, y_ptr + here.row, y_out);"
_ROW_STORE = "store_pack(columns[i], y_ptr, at, whole, y_out);"
_TAKE = "take(packed, at, gemm_product_in[u]);"
_LANES = "for (int v = 0; v < kVec - 1; ++v) y_ptr[{row} + {columns}.at(v)] = y_out.element[v];"


def _skips(run, kernel, cases):
    return [Mutant(f"{kernel} skips {what}", run, old, new, caught, within=kernel) for what, old, new, caught in cases]


FULL = [
    *_skips(
        "stream",
        "forward",
        (
            ("the last row", _STORE, f"if (at != rows - 1) {_STORE}", nan("y")),
            ("the first row", _STORE, f"if (at != 0) {_STORE}", nan("y")),
            ("the last column", _STORE, f"if (columns.first + kVec < channels) {_STORE}", nan("y")),
            (
                "the last element of each vector",
                _STORE,
                _LANES.format(row="at * channels", columns="here"),
                nan("y"),
            ),
            ("a block", _STORE, f"if (blockIdx.x != 1) {_STORE}", nan("y")),
            ("a block of rows", _STORE, f"if (blockIdx.y != 2) {_STORE}", nan("y")),
            ("the rows of one unrolled turn", _TAKE, f"if (u != kRowsInFlight - 2) {_TAKE}", nan("y")),
        ),
    ),
    *_skips(
        "column",
        "train_forward_column",
        (
            ("the last row", _TILE_STORE, f"if (here.row != (rows - 1) * channels) {_TILE_STORE}", nan("y")),
            ("the last column", _TILE_STORE, f"if (columns.first + kVec < channels) {_TILE_STORE}", nan("y")),
            (
                "the last element of each vector",
                _TILE_STORE,
                _LANES.format(row="here.row", columns="columns"),
                nan("y"),
            ),
            ("a block", _TILE_STORE, f"if (blockIdx.x != 1) {_TILE_STORE}", nan("y")),
        ),
    ),
    *_skips(
        "short rows",
        "forward_row",
        (
            ("the last row", "at < size", "at < size - channels", nan("y")),
            ("the last column", _ROW_STORE, f"if (columns[i].first + kVec < channels) {_ROW_STORE}", nan("y")),
            ("the last vector of a thread", _ROW_STORE, f"if (i + 1 < kItems) {_ROW_STORE}", nan("y")),
            (
                "the last element of each vector",
                _ROW_STORE,
                _LANES.format(row="at", columns="columns[i]"),
                nan("y"),
            ),
            ("a block", _ROW_STORE, f"if (blockIdx.x != 1) {_ROW_STORE}", nan("y")),
        ),
    ),
    *_skips(
        "segments",
        "forward_apply",
        (("the last group", _STORE, f"if (segment[0] + 1 < groups) {_STORE}", nan("y")),),
    ),
    *_skips(
        "split",
        "train_backward_apply",
        (
            (
                "the last row of a gradient",
                "store_pack(here, grad_matmul_product_ptr, at * length, whole, grad_matmul_product_out);",
                "if (at != rows - 1) "
                "store_pack(here, grad_matmul_product_ptr, at * length, whole, grad_matmul_product_out);",
                nan("grad_matmul_product"),
            ),
        ),
    ),
]

_MEAN = "store_values(columns, bn_mean_ptr, bn_mean_v);"
_KEPT = "store_values(columns, bn_running_var_ptr, new_bn_running_var_v);"
_WEIGHT = "store_values(columns, grad_bn_weight_ptr, bn_hat_d_over_divide_value_sum_scaled_v);"
_SLOT = "store_partials(columns, partials, blockIdx.y, 2, 1, channels, period, bn_centered_d_over_divide_value_sum_v);"
_ROW_SLOT = "store_values(columns[i], mine + 2 * channels, d_gemm_sum_v[own]);"

PER_CHANNEL = [
    *_skips(
        "column",
        "train_forward_column",
        (
            ("a statistic", _MEAN, f"if (columns.first + kVec < channels) {_MEAN}", nan("grad_matmul_product")),
            ("a running statistic", _KEPT, f"if (columns.first + kVec < channels) {_KEPT}", wrong("bn_running_var")),
        ),
    ),
    *_skips(
        "column",
        "train_backward_column",
        (("a parameter's gradient", _WEIGHT, f"if (columns.first != 0) {_WEIGHT}", nan("grad_bn_weight")),),
    ),
    *_skips(
        "split",
        "train_forward_finalise",
        (
            ("the last channel", "column < channels", "column + 1 < channels", UNWRITTEN),
            (
                "a running statistic",
                "bn_running_mean_ptr[column] = narrow<Param>(new_bn_running_mean_v);",
                "if (column + 1 < channels) bn_running_mean_ptr[column] = narrow<Param>(new_bn_running_mean_v);",
                wrong("bn_running_mean"),
            ),
        ),
    ),
    *_skips(
        "split",
        "train_backward_finalise",
        (
            (
                "a parameter's gradient",
                "grad_bn_bias_ptr[column] = narrow<Param>(d_over_divide_value_sum_v * inverse_divide_value_v);",
                "if (column + 1 < channels) "
                "grad_bn_bias_ptr[column] = narrow<Param>(d_over_divide_value_sum_v * inverse_divide_value_v);",
                nan("grad_bn_bias"),
            ),
            (
                "a sum in the workspace",
                "d_over_divide_value_sum_ptr[column] = d_over_divide_value_sum_v;",
                "if (column + 1 < channels) d_over_divide_value_sum_ptr[column] = d_over_divide_value_sum_v;",
                UNWRITTEN,
            ),
        ),
    ),
    *_skips(
        "column",
        "train_backward_total",
        (
            (
                "its only element",
                "grad_bias_ptr[0] = narrow<Param>(d_over_divide_value_sum_sum_v * inverse_divide_value_v);",
                "static_cast<void>(inverse_divide_value_v);",
                nan("grad_bias"),
            ),
        ),
    ),
    *_skips(
        "split",
        "train_backward_partials",
        (
            ("a partial result", _SLOT, f"if (columns.first + kVec < channels) {_SLOT}", UNWRITTEN),
            ("a block's partial results", _SLOT, f"if (blockIdx.y != 2) {_SLOT}", UNWRITTEN),
        ),
    ),
    *_skips(
        "short rows",
        "backward_row",
        (
            ("a partial result", _ROW_SLOT, f"if (columns[i].first != 0) {_ROW_SLOT}", UNWRITTEN),
            ("a block's partial results", _ROW_SLOT, f"if (blockIdx.x != 1) {_ROW_SLOT}", UNWRITTEN),
        ),
    ),
    *_skips(
        "short rows",
        "forward_row",
        (
            (
                "the statistics of the last group",
                "lane == 0 && valid && segment < groups",
                "lane == 0 && valid && segment + 1 < groups",
                nan("grad_gemm_product"),
            ),
        ),
    ),
    *_skips(
        "segments",
        "forward_segments",
        (
            (
                "a segment's statistic",
                "group_norm_rstd_ptr[item] = group_norm_rstd_v;",
                "if (item != 0) group_norm_rstd_ptr[item] = group_norm_rstd_v;",
                UNWRITTEN,
            ),
        ),
    ),
]

STORES = [*FULL, *PER_CHANNEL]
