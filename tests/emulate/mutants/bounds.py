"""Indices one too large or too small, shared buffers and workspaces that are too small, and misaligned vectors."""

from __future__ import annotations

from tests.emulate.mutants.mutant import BEYOND_SHARED, BLOCKS, EARLY, MISALIGNED, RACE, UNWRITTEN, Mutant, wrong

_FULL = r"Buffer\(float32, \[70, 132\]\)"  # what the stream kernels read and write
_CHANNELS = r"Buffer\(float32, \[1, 132\]\)"
UNWRITTEN_SHARED = "of shared memory, which nothing has written"
_PAST = r", \d+ bytes past its end"
_BEFORE = r", \d+ bytes before its start"

INPUTS = [
    Mutant(
        "a vector past the end of an input",
        "stream",
        "load_pack(columns, gemm_product_ptr + at * channels)",
        "load_pack(columns, gemm_product_ptr + at * channels + kVec)",
        rf"reads .*{_FULL} \(read-only\){_PAST}",
        within="forward",
        kernel="forward",
    ),
    Mutant(
        "a vector before the beginning of an input",
        "stream",
        "load_pack(columns, gemm_product_ptr + at * channels)",
        "load_pack(columns, gemm_product_ptr + at * channels - kVec)",
        rf"reads .*{_FULL} \(read-only\){_BEFORE}",
        within="forward",
        kernel="forward",
    ),
    Mutant(
        "a row past the end",
        "stream",
        "at >= last",
        "at > last",
        rf"reads .*{_FULL} \(read-only\){_PAST}",
        within="forward",
        kernel="forward",
        of=2,
    ),
    Mutant(
        "a column past the end",
        "split",
        "first < end ? kVec : 0",
        "first <= end ? kVec : 0",
        rf"(reads|writes) .*({_PAST}|{BLOCKS})",
        within="columns_of",
        file="types.cuh",
    ),
    Mutant(
        "a row of a tile past the end",
        "column",
        "row >= last",
        "row > last",
        rf"reads .*{_FULL} \(read-only\){_PAST}",
        within="train_forward_column",
        kernel="train_forward_column",
        of=2,
    ),
    Mutant(
        "a row of a turn past the end",
        "short rows",
        "row < rows",
        "row <= rows",
        rf"writes .*Buffer\(float32, \[41, (2|264)\]\){_PAST}",
        within="forward_row",
        kernel="forward_row",
    ),
    Mutant(
        "a group too many",
        "five groups",
        "segment < groups ? (segment + 1) * length : 0",
        "(segment + 1) * length",
        rf"(reads|writes) .*{_PAST}",
        within="forward_row",
        kernel="forward_row",
    ),
    Mutant(
        "a vector past the end of a row's last group",
        "short rows",
        "segment < groups ? (segment + 1) * length : 0",
        "segment < groups ? (segment + 1) * length + 1 : 0",
        rf"reads .*Buffer\(float32, \[1, 264\]\) \(read-only\){_PAST}",
        within="forward_row",
        kernel="forward_row",
    ),
    Mutant(
        "a vector past the end of a segment",
        "segments",
        "(segment + 1) * length",
        "(segment + 1) * length + 1",
        rf"reads .*Buffer\(float32, \[(1|41), 264\]\) \(read-only\){_PAST}",
        within="forward_segments",
        kernel="forward_segments",
    ),
    Mutant(
        "one channel's parameter past the end",
        "split",
        "bn_running_var_ptr[column]",
        "bn_running_var_ptr[column == channels - 1 ? column + 1 : column]",
        rf"reads .*{_CHANNELS}{_PAST}",
        within="train_forward_finalise",
        kernel="train_forward_finalise",
        of=2,
    ),
    Mutant(
        "one channel too many of a sum over all",
        "column",
        "column < channels",
        "column <= channels",
        rf"{UNWRITTEN}, .* at element 132 ",
        within="train_backward_total",
        kernel="train_backward_total",
    ),
    Mutant(
        "writes to an input",
        "split",
        "store_pack(columns, y_ptr + at * channels, y_out);",
        "store_pack(columns, const_cast<T*>(matmul_product_ptr) + at * channels, y_out);",
        rf"writes .*{_FULL} \(read-only\), at element",
        within="train_forward_apply",
        kernel="train_forward_apply",
    ),
    Mutant(
        "reads an output before it is written",
        "split",
        "narrow<Out>(silu_value)",
        "narrow<Out>(silu_value + 0 * widen(y_ptr[at * channels + columns.at(v)]))",
        rf"{UNWRITTEN}, .*{_FULL}, at element",
        within="train_forward_apply",
        kernel="train_forward_apply",
    ),
]

OUTPUTS = [
    Mutant(
        "a vector past the end of an output",
        "stream",
        "store_pack(columns, y_ptr + at * channels, y_out);",
        "store_pack(columns, y_ptr + at * channels + kVec, y_out);",
        rf"writes .*{_FULL}(, which|{_PAST})",
        within="forward",
        kernel="forward",
    ),
    Mutant(
        "an element past the end of an output",
        "stream",
        "store_pack(columns, y_ptr + at * channels, y_out);",
        "store_pack(columns, y_ptr + at * channels, y_out); if (at == rows - 1) y_ptr[rows * channels] = Out(0);",
        rf"writes .*{_FULL}, 0 bytes past its end",
        within="forward",
        kernel="forward",
    ),
    Mutant(
        "an element before the beginning of an output",
        "stream",
        "store_pack(columns, y_ptr + at * channels, y_out);",
        "store_pack(columns, y_ptr + at * channels, y_out); if (at == 0 && columns.first == 0) y_ptr[-1] = Out(0);",
        rf"writes .*{_FULL}, 4 bytes before its start",
        within="forward",
        kernel="forward",
    ),
    Mutant(
        "a channel past the end of the statistics",
        "split",
        "bn_mean_ptr[column] = bn_mean;",
        "bn_mean_ptr[column] = bn_mean; if (column == channels - 1) bn_mean_ptr[column + 1] = bn_mean;",
        rf"writes .*{_CHANNELS}, 0 bytes past its end",
        within="train_forward_finalise",
        kernel="train_forward_finalise",
    ),
    Mutant(
        "a segment past the end of the statistics",
        "segments",
        "group_norm_mean_ptr[item] = group_norm_mean;",
        "group_norm_mean_ptr[item + 1] = group_norm_mean;",
        rf"writes .*Buffer\(float32, \[41, 2\]\), 0 bytes past its end|{BLOCKS}",
        within="forward_segments",
        kernel="forward_segments",
    ),
    Mutant(
        "a row's statistics before the beginning",
        "short rows",
        "group_norm_mean_ptr[row * groups + segment] = group_norm_mean;",
        "group_norm_mean_ptr[row * groups + segment - 1] = group_norm_mean;",
        r"writes .*Buffer\(float32, \[41, 2\]\), 4 bytes before its start|which (another|thread)",
        within="forward_row",
        kernel="forward_row",
    ),
    Mutant(
        "every block writes the first one's partial results",
        "split",
        "partials + blockIdx.y * 2 * channels",
        "partials + 0 * 2 * channels",
        rf"writes .*, {BLOCKS}",
        within="train_forward_partials",
        kernel="train_forward_partials",
    ),
    Mutant(
        "a partial result in the next block's place",
        "split",
        "store_values(columns, mine + 1 * channels, bn_centered_d_over_divide_value_sum);",
        "store_values(columns, mine + 2 * channels, bn_centered_d_over_divide_value_sum);",
        rf"writes .*, {BLOCKS}",
        within="train_backward_partials",
        kernel="train_backward_partials",
    ),
]

WORKSPACE = [
    Mutant(
        "a workspace that is too small",
        "split",
        "bytes_ += (count * int64_t(sizeof(T)) + 255) / 256 * 256;",
        "bytes_ += (count * int64_t(sizeof(T)) + 255) / 256 * 256 - (measures_ ? 256 : 0);",
        rf"(reads|writes) .*{_PAST}",
        file="shapes.cuh",
        kernel="train_forward_(partials|finalise)",
    ),
    Mutant(
        "one block's partial results too many",
        "split",
        "partials[(block * 2 + slot) * channels + column]",
        "partials[((block + 1) * 2 + slot) * channels + column]",
        rf"{UNWRITTEN}|reads .*{_PAST}",
        within="train_backward_finalise",
        kernel="train_backward_finalise",
    ),
    Mutant(
        "partial results from before the beginning",
        "split",
        "partials[(block * 2 + slot) * channels + column]",
        "partials[((block - 1) * 2 + slot) * channels + column]",
        rf"reads .*{_BEFORE}",
        within="train_forward_finalise",
        kernel="train_forward_finalise",
    ),
    Mutant(
        "pieces of the workspace that overlap",
        "split",
        "scratch.take<Acc>(int64_t(shape.grid.y) * 2 * channels)",
        "scratch.take<Acc>(channels)",
        rf"(reads|writes) .*({_PAST}|, {BLOCKS})",
        within="train_backward_launch",
        kernel="train_backward_(partials|finalise|apply)",
    ),
]

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
        ("train_backward_total", "column", "train_backward_launch", "32 * sizeof(Acc)", "31 * sizeof(Acc)", 0, 2),
        ("backward", "stream", "backward_launch", "kStreamThreads * 2 * kVec * sizeof(Acc)",
         "(kStreamThreads * kVec - 1) * sizeof(Acc)", 0, 1),
        ("forward_row", "long rows", "forward_launch", "512 * kVec * sizeof(Acc)", "3 * sizeof(Acc)", 0, 1),
        ("backward_row", "short rows", "backward_launch", "512 * kVec * sizeof(Acc)",
         "(512 * kVec - 1) * sizeof(Acc)", 0, 1),
        ("forward_segments", "segments", "forward_launch", "64 * sizeof(Acc)", "39 * sizeof(Acc)", 0, 1),
        ("backward_segments", "segments", "backward_launch", "64 * sizeof(Acc)", "7 * sizeof(Acc)", 0, 1),
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
        r"writes byte -4 of the block's 256 bytes of shared memory \[",
        within="sum_over_lanes",
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
    *(
        Mutant(
            f"another thread's element of the tile is {what}",
            "column",
            "matmul_product_tile[(row - first) * blockDim.x + threadIdx.x]",
            "matmul_product_tile[(row - first) * blockDim.x + (threadIdx.x ^ 1)]",
            UNWRITTEN_SHARED,  # by a thread without a column
            within="train_forward_column",
            kernel="train_forward_column",
            nth=nth,
            of=2,
        )
        for nth, what in enumerate(("written", "read"))
    ),
    Mutant(
        "another row's element of the tile",
        "column",
        "d_over_divide_value_tile[(row - first) * blockDim.x + threadIdx.x]",
        "d_over_divide_value_tile[((row - first) ^ 1) * blockDim.x + threadIdx.x]",
        wrong("grad_matmul_product"),
        within="train_backward_column",
        nth=1,
        of=2,
    ),
    Mutant(
        "a value in the tile of another one",
        "column",
        "matmul_product_tile[(row - first) * blockDim.x + threadIdx.x]",
        "reinterpret_cast<decltype(matmul_product_tile)>(d_over_divide_value_tile)"
        "[(row - first) * blockDim.x + threadIdx.x]",
        wrong("grad_matmul_product"),
        within="train_backward_column",
        nth=1,
        of=2,
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
        within="sum_over_lanes",
        kernel="forward_row",
        file="reduce.cuh",
    ),
    Mutant(
        "a row of the tile that nothing has written",
        "column",
        "matmul_product_tile[(row - first) * blockDim.x + threadIdx.x] = matmul_product_in[u];",
        "if (row != rows - 1) matmul_product_tile[(row - first) * blockDim.x + threadIdx.x] = matmul_product_in[u];",
        UNWRITTEN_SHARED,
        within="train_backward_column",
        kernel="train_backward_column",
    ),
]

ALIGNMENT = [
    Mutant(
        "a vector at an address of one element",
        "stream",
        "load_pack(columns, gemm_product_ptr + at * channels)",
        "load_pack(columns, gemm_product_ptr + at * channels + 1)",
        MISALIGNED,
        within="forward",
        kernel="forward",
    ),
    Mutant(
        "vectors in tensors that are not aligned",
        "misaligned",
        "reinterpret_cast<uintptr_t>(pointers) % 16 == 0",
        "reinterpret_cast<uintptr_t>(pointers) % 4 == 0",
        MISALIGNED,
        file="shapes.cuh",
        kernel="forward",
    ),
    Mutant(
        "vectors in rows that do not start at one",
        "odd",
        "a.channels % kVec == 0",
        "a.channels % 2 == 0",
        rf"{MISALIGNED}|reads .*\(read-only\){_PAST}",  # of the first row's end or of another one's beginning
        within="forward_typed",
        kernel="forward",
    ),
]

BOUNDS = [*INPUTS, *OUTPUTS, *WORKSPACE, *SHARED, *ALIGNMENT]
