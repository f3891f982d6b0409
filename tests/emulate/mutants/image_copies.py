"""The copy of images: who waits for whom, where a tile ends, and where its elements are."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import BEYOND_SHARED, BLOCKS, EARLY, UNWRITTEN_SHARED, Mutant

_KERNEL, _SHAPES = "kernels/image_copy.cuh", "image_copy_shapes.cuh"
_PADDING = "kernels/image_padding.cuh"
_COPY = """__pipeline_memcpy_async(
    reinterpret_cast<W*>(own), reinterpret_cast<const W*>(source), sizeof(W));"""
# More than a page past the end of a tensor there may be the memory of a block or a thread.
_OUTSIDE = r"(reads|writes) .*\d+ bytes past its end|copies from \S+, which is not global memory"

IMAGE_COPIES = [
    Mutant(f"image copy: {name}", run, file, within, old, new, caught, "image_copy_kernel")
    for name, run, file, within, old, new, caught in (
        ("copies do not end", "a tile", _KERNEL, "image_copy_kernel", "end_row();", NOTHING, UNWRITTEN_SHARED),
        ("no copy is waited for", "a tile", _KERNEL, "image_copy_kernel", "wait_for_rows<0>();", NOTHING,
         UNWRITTEN_SHARED),
        ("written before all threads have read", "a tile", _KERNEL, "image_copy_kernel", "__syncthreads();", NOTHING,
         EARLY),
        ("nothing is read", "a tile", _KERNEL, "read_by", _COPY, NOTHING, UNWRITTEN_SHARED),
        ("columns past the end", "several tiles", _KERNEL, "read_by", "column >= columns_", "false", _OUTSIDE),
        ("too few elements in shared memory", "a tile", _SHAPES, "elements", "index_of(tile_rows, 0) + padding",
         "index_of(tile_rows, 0) / 2", BEYOND_SHARED),
        ("vectors of an odd number of columns", "odd", _SHAPES, "copy_step", "length % step == 0", "true",
         "copies 16 bytes to or from an address between them"),
        ("the first tile again", "several tiles", _KERNEL, None, "int64_t(across) << tiles.shift", "0", BLOCKS),
        ("the first image again", "a tile", _KERNEL, None, "image * tiles.columns", "0", BLOCKS),
    )
] + [
    Mutant("image copy: the last column again", "few rows", _KERNEL, "write_in_order", "++column;", NOTHING,
           "not the copy"),
    Mutant("padding: rows that the source lacks", "with zeros", _KERNEL, "write_padded", "row + v < given_", "true",
           UNWRITTEN_SHARED, "image_copy_kernel"),
    Mutant("padding: all rows of a tile are read", "with zeros", _KERNEL, None,
           "given < rows_ ? given > 0 ? int(given) : 0 : rows_", "rows_", _OUTSIDE, "image_copy_kernel"),
    Mutant("padding: the first rows again", "with zeros", _KERNEL, "write_padded",
           "int(at - column * vectors) * kWrites", "0",
           r"writes global memory .*, which thread \(.*\) has written", "image_copy_kernel"),
    Mutant("padding: channels that are not there", "in order", _PADDING, "padded_vector", "first < given", "true",
           _OUTSIDE, "image_padding_kernel"),
    Mutant("padding: positions of the next block", "in order", _PADDING, "image_padding_kernel",
           "left < shape.per_block", "false", _OUTSIDE, "image_padding_kernel"),
    Mutant("padding: the first block again", "in order", _PADDING, "image_padding_kernel",
           "int64_t(blockIdx.x) * shape.per_block", "0", BLOCKS, "image_padding_kernel"),
]  # fmt: skip
