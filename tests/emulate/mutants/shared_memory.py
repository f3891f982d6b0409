"""Shared memory that is too small, accessed beyond its ends, or used for two things at once."""

from __future__ import annotations

from tests.emulate.mutants.mutant import BEYOND_SHARED, EARLY, RACE, UNWRITTEN_SHARED, Mutant, wrong

_FINALISE = "kStreamThreads * 2 * sizeof(Acc)"

# The launch gives a kernel as many bytes as it needs; some get more, and then it takes more than one element less.
SHARED = [
    Mutant(
        f"shared memory of {kernel} one element too small",
        run,
        old,
        new,
        BEYOND_SHARED,
        within=launcher,
        kernel=kernel,
        nth=nth,
        of=of,
    )
    for kernel, run, launcher, old, new, nth, of in (
        *(
            (f"train_{way}_column", "column", f"train_{way}_launch", "tile.shared_bytes",
             "tile.shared_bytes - sizeof(Acc)", 0, 1)
            for way in ("forward", "backward")
        ),
        ("train_forward_partials", "split", "train_forward_launch", "kStreamThreads * 2 * kVec * sizeof(Acc)",
         "(kStreamThreads * 2 * kVec - 1) * sizeof(Acc)", 0, 1),
        ("train_forward_finalise", "split", "train_forward_launch", _FINALISE,
         "(kStreamThreads / 2 - 1) * sizeof(Acc)", 0, 1),
        ("train_backward_partials", "split", "train_backward_launch", "kStreamThreads * 2 * kVec * sizeof(Acc)",
         "(kStreamThreads * 2 * kVec - 1) * sizeof(Acc)", 0, 1),
        ("train_backward_finalise", "split", "train_backward_launch", _FINALISE,
         "(kStreamThreads / 4 - 1) * sizeof(Acc)", 0, 1),
        ("train_backward_total", "column", "train_backward_launch", "32 * sizeof(Acc)", "31 * sizeof(Acc)", 0, 3),
        ("train_forward_panel", "panels", "train_forward_launch", "kPanelWarps * (2 * panel.block.x * kVec + 1)",
         "kPanelWarps * (2 * panel.block.x * kVec + 1) - 1", 0, 1),
        ("train_backward_panel", "panels", "train_backward_launch", "kPanelWarps * (2 * panel.block.x * kVec)",
         "kPanelWarps * (2 * panel.block.x * kVec) - 1", 0, 1),
        ("backward", "stream", "backward_launch", "kStreamThreads * 2 * kVec * sizeof(Acc)",
         "(kStreamThreads * kVec - 1) * sizeof(Acc)", 0, 1),
        ("forward_row", "long rows", "forward_launch", "96 * sizeof(Acc)", "3 * sizeof(Acc)", 1, 2),
        ("forward_row", "longest rows", "forward_launch", "row.block.x * kStagedBytes",
         "row.block.x * kStagedBytes - 1", 0, 1),
        ("backward_row", "short rows", "backward_launch", "exchanged * sizeof(Acc)",
         "(exchanged - 1) * sizeof(Acc)", 0, 1),
        ("backward_row", "longest rows, large blocks", "backward_launch", "row.block.x * kStagedBytes",
         "row.block.x * kStagedBytes - 1", 0, 1),
        ("forward_segments", "segments", "forward_launch", "kSegmentExchange", "39", 0, 1),
        ("backward_segments", "segments", "backward_launch", "kSegmentExchange", "39", 0, 1),
    )
]  # fmt: skip
SHARED += [
    Mutant(
        "shared memory one element past the end",
        "split",
        "shared[i] = total;",
        "shared[i] = total; if (i == sums - 1) shared[warp_count() * sums] = total;",
        r"writes byte 8192 of the block's 8192 bytes of shared memory \[",
        within="sum_over_y",
        kernel="train_forward_partials",
        file="reduce.cuh",
    ),
    Mutant(
        "shared memory one element before the beginning",
        "segments",
        "shared[i * 32 + threadIdx.x / 32] = *values[i];",
        "shared[i * 32 + int(threadIdx.x / 32) - 1] = *values[i];",
        r"writes byte -4 of the block's 264 bytes of shared memory \[",
        within="sum_over_warps",
        kernel="forward_segments",
        file="reduce.cuh",
    ),
    Mutant(
        "sums of a block in the tile before them",
        "column",
        "shared[warp * sums + (i / N * width + lane) * N + i % N]",
        "shared[warp * sums + (i / N * width + lane) * N + i % N - 1]",
        EARLY,
        within="sum_over_y",
        kernel="train_forward_column",
        file="reduce.cuh",
    ),
    Mutant(
        "another thread's element of the tile is written",
        "column",
        "matmul_product_tile + next.at",
        "matmul_product_tile + (next.at ^ 1)",
        EARLY,
        within="train_forward_column",
        kernel="train_forward_column",
    ),
    Mutant(
        "another thread's element of the tile is read",
        "column",
        "matmul_product_tile[here.at]",
        "matmul_product_tile[here.at ^ 1]",
        UNWRITTEN_SHARED,  # by a thread without a column
        within="train_forward_column",
        kernel="train_forward_column",
    ),
    Mutant(
        "another row's element of the tile",
        "column",
        "d_over_divide_value_tile[here.at]",
        "d_over_divide_value_tile[here.at ^ int(blockDim.x)]",
        wrong("grad_matmul_product"),
        within="train_backward_column",
        nth=1,
        of=2,
    ),
    Mutant(
        "a value in the tile of another one",
        "column",
        "matmul_product_tile[here.at]",
        "reinterpret_cast<decltype(matmul_product_tile)>(d_over_divide_value_tile)[here.at]",
        wrong("grad_matmul_product"),
        within="train_backward_column",
    ),
    Mutant(
        "tiles that overlap by a row",
        "column",
        "behind<Pack<Acc, kVec>>(matmul_product_tile, vectors)",
        "behind<Pack<Acc, kVec>>(matmul_product_tile, vectors - blockDim.x)",
        RACE,
        within="train_backward_column",
        kernel="train_backward_column",
    ),
    Mutant(
        "the sums of two arrays in one place",
        "long rows",
        "shared[i * 32 + threadIdx.x / 32] = *values[i];",
        "shared[threadIdx.x / 32] = *values[i];",
        EARLY,
        within="sum_over_warps",
        kernel="backward_row",
        file="reduce.cuh",
    ),
    Mutant(
        "means and squares of warps in one place",
        "long rows",
        "shared[32 + threadIdx.x / 32] = moments.m2;",
        "shared[threadIdx.x / 32] = moments.m2;",
        EARLY,
        within="moments_over_warps",
        kernel="forward_row",
        file="reduce.cuh",
    ),
    Mutant(
        "counts of warps where their moments are",
        "long rows",
        "shared + 32 * 2",
        "shared",
        f"{RACE}|{EARLY}|{wrong('y')}",
        within="forward_row",
    ),
    Mutant(
        "a row of the tile that nothing has written",
        "column",
        "next.at < end",
        "next.at < end - int(blockDim.x)",
        UNWRITTEN_SHARED,
        within="train_backward_column",
        kernel="train_backward_column",
    ),
]
