"""Columns of a thread that are not neighbours: those that do not exist, and whose each is."""

from __future__ import annotations

from tests.emulate.mutants.mutant import UNWRITTEN, Mutant, nan, wrong

_PAST = r", \d+ bytes past its end"

STRIDED = [
    Mutant(
        f"{run}: {name}",
        run,
        old,
        new,
        caught,
        within=within,
        file=file,
        kernel=kernel,
        nth=nth,
        of=of,
    )
    for name, run, within, file, kernel, old, new, caught, nth, of in (
        ("a column past the end", "odd", "columns_of", "types.cuh", None, "first + v * threads < end",
         "first + v * threads <= end", rf"{_PAST}|which (another|thread)", 0, 1),
        ("a column past the end", "odd columns", "columns_of", "types.cuh", None, "first + v * threads < end",
         "first + v * threads <= end", rf"{_PAST}|which (another|thread)", 0, 1),
        ("a column less", "odd", "columns_of", "types.cuh", None, "first + v * threads < end",
         "first + v * threads + 1 < end", UNWRITTEN, 0, 1),
        ("neighbours", "odd", "columns_of", "types.cuh", None, "return {first, threads, count};",
         "return {first, 1, count};", rf"which (another|thread)|{nan('y')}", 0, 1),
        ("what does not exist is stored", "odd", "store_pack", "types.cuh", None,
         "if (columns.has(v)) row[columns.at(v)] = pack[v];", "row[columns.at(v)] = pack[v];", wrong("y"), 0, 1),
        ("distances of what does not exist", "odd rows", "forward_row", "kernels.cu", None,
         "columns[i].has(v) ? gemm - group_norm_moments.mean : Acc(0)", "gemm - group_norm_moments.mean",
         wrong("y"), 0, 1),
        ("the group of the first column for all", "odd segments", "forward_apply", "kernels.cu", None,
         "columns.at(kPacked ? 0 : v)", "columns.at(0)", wrong("y"), 0, 1),
        ("a statistic of what does not exist", "odd, split", "train_forward_partials", "kernels.cu", None,
         "if (!columns.has(v)) continue;", "", wrong("y"), 0, 1),
    )
]  # fmt: skip
