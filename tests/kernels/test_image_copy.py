"""The copy that exchanges the dimensions of images, bit by bit."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.kernels.building import compiled

SOURCE = '#include "image_copy_programs.cuh"\n'
KINDS = {  # the mode, and the dtypes of both tensors
    "float32": (0, torch.float32, torch.float32),
    "bfloat16": (0, torch.bfloat16, torch.bfloat16),
    "float32 to bfloat16": (0, torch.float32, torch.bfloat16),
    "float32 to float16": (1, torch.float32, torch.float16),
}
SIZES = [  # images, rows, columns
    (1, 2, 2),
    (2, 3, 1),
    (2, 1, 3),
    (3, 3, 224),  # few rows, of which a tile has all, in vectors over several columns
    (2, 3, 1031),  # several tiles of few rows
    (2, 5, 49),
    (3, 49, 5),  # few columns
    (1, 1100, 3),
    (1, 2112, 4),  # several tiles of few columns
    (2, 64, 64),
    (1, 96, 200),  # tiles of 48 rows
    (2, 66, 70),  # halves of vectors of 4 elements
    (2, 76, 68),  # and of 8
    (2, 131, 137),  # no vectors
    (1, 65, 72),
    (1, 72, 65),
    (2, 40, 136),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache, checked=True)


def run(library, images, rows, columns, kind="float32", *, misaligned=(False, False), seed=0):
    """misaligned: whether the tensors, the given one and the copy, begin within a vector."""
    mode, given, made = KINDS[kind]
    values = torch.randn(images, rows, columns, generator=torch.Generator().manual_seed(5)).to(given)
    offsets = [dtype.itemsize * off for dtype, off in zip((given, made), misaligned, strict=True)]
    x = Buffer.from_tensor(values, offset_bytes=offsets[0], readonly=True)
    y = Buffer.poisoned((images, columns, rows), made, offset_bytes=offsets[1])
    sizes = (images, rows, columns, given.itemsize, made.itemsize)
    library.call("image_copy", mode, x, y, *sizes, rows, 0, seed=seed)
    assert torch.equal(y.tensor(), values.to(made).transpose(1, 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("images", "rows", "columns"), SIZES)
def test_each_size(library, images, rows, columns, kind):
    run(library, images, rows, columns, kind)


@pytest.mark.parametrize("misaligned", [(True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("images", "rows", "columns"), [(2, 3, 264), (2, 72, 136)])
def test_tensors_that_begin_within_a_vector(library, images, rows, columns, kind, misaligned):
    run(library, images, rows, columns, kind, misaligned=misaligned)


def test_bits_of_no_number(library):
    """Payloads are kept, and so are signs of zero."""
    bits = torch.tensor([0x7FC00001, 0x7F800001, -0x80000000, 0, 1, -1], dtype=torch.int32).repeat(100)
    x = Buffer.from_tensor(bits.view(torch.float32).view(1, 6, 100), readonly=True)
    y = Buffer.poisoned((1, 100, 6), torch.float32)
    library.call("image_copy", 0, x, y, 1, 6, 100, 4, 4, 6, 0)
    expected = bits.view(6, 100).T
    assert torch.equal(y.tensor().view(torch.int32)[0], expected)


@pytest.mark.parametrize("sizes", [(8, 8), (2, 4)], ids=str)
def test_no_such_kernel(library, sizes):
    x, y = (Buffer.poisoned((1, 2, 2), torch.float64) for _ in range(2))
    with pytest.raises(Exception, match="1"):
        library.call("image_copy", 0, x, y, 1, 2, 2, *sizes, 2, 0)
