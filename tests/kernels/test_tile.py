"""The tile kernel and the plane kernel, with a small program, against float64."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.kernels.building import compiled
from tests.kernels.test_pointwise import Values, close

SOURCE = '#include "tile_programs.cuh"\n'
KINDS = {  # the dtypes of the inner and the outer input
    "float32": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "bfloat16 and float32": (torch.bfloat16, torch.float32),
    "float64": (torch.float64, torch.float64),
}
SIZES = [  # batch, positions, channels
    (1, 1, 1),
    (3, 1, 8),
    (2, 7, 5),
    (1, 33, 1),
    (2, 130, 12),  # a tile and the beginning of another one; an image has whole vectors of neither width
    (3, 64, 40),
    (2, 16, 264),
    (5, 136, 24),
    (2, 70, 16),  # halves of vectors
    (2, 68, 16),
    (1, 1048, 3),
    (7, 196, 9),  # half a warp of a plane leaves fewer threads idle
]
both = pytest.mark.parametrize("planes", [False, True], ids=["tiles", "planes"])


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache, checked=True)


def run(
    library, batch, positions, channels, kind="float32", planes=False, *, misaligned=False, wanted="yw", blocks=0,
    seed=0, far=0,
):  # fmt: skip
    """planes: all tensors of all elements are [batch, channels, positions], and the scale is 1."""
    inner, outer = KINDS[kind]
    values, acc = Values(inner, misaligned), torch.float64 if inner == torch.float64 else torch.float32
    rows = batch * positions
    in_rows = (batch, channels, positions) if planes else (rows, channels)
    x_, x = values.given(*in_rows)
    z_, z = values.given(batch, channels, positions, dtype=outer)
    bias_, bias = values.given(channels)
    scale_, scale = values.given(rows)
    if far or planes:
        x_ = Buffer.from_tensor(x_.tensor() + far, readonly=True)
        scale_ = Buffer.from_tensor(torch.ones_like(scale_.tensor()), readonly=True)
        x, scale = (each.tensor().double() for each in (x_, scale_))
    y = values.made(batch, channels, positions) if "y" in wanted else None
    w = values.made(*in_rows) if "w" in wanted else None
    mean, inverse, sum_, y_sum = (values.made(channels, dtype=acc) for _ in range(4))
    partials = values.made(3 * 16 * 40 * channels, dtype=acc)
    library.call(
        "tiles", list(KINDS).index(kind) + planes * len(KINDS), x_, z_, bias_, scale_, y, w, mean, inverse, sum_, y_sum,
        partials, batch, positions, channels, blocks, seed=seed,
    )  # fmt: skip

    def as_rows(images):
        return images.transpose(1, 2).reshape(rows, channels)

    def as_images(matrix):
        return matrix.reshape(batch, positions, channels).transpose(1, 2)

    x, z = as_rows(x) if planes else x, as_rows(z)
    h = (x + bias) * scale[:, None] + z
    close(mean, h.mean(0))
    expected_inverse = 1 / (1 + h.var(0, unbiased=False))
    close(inverse, expected_inverse)
    close(sum_, h.sum(0), rows)
    expected = (h - h.mean(0)) * expected_inverse
    close(y_sum, (expected**2).sum(0), rows)
    if y:
        close(y, as_images(expected))
    if w:
        close(w, as_images(x * z) if planes else x * z)
    return [each.tensor() for each in (y, w, mean, inverse, sum_, y_sum) if each]


@both
@pytest.mark.parametrize("misaligned", [False, True], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "positions", "channels"), SIZES)
def test_tensors_of_both_orders(library, batch, positions, channels, kind, misaligned, planes):
    run(library, batch, positions, channels, kind, planes, misaligned=misaligned)


@both
@pytest.mark.parametrize("wanted", ["", "y", "w"])
def test_what_is_not_wanted(library, wanted, planes):
    run(library, 2, 9, 12, planes=planes, wanted=wanted)


@both
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("positions", [400, 401])
def test_several_tiles_of_a_block(library, positions, kind, planes):
    """Of an image and of the next one, and fewer in the last block: 8 blocks for 9 images of four tiles."""
    run(library, 9, positions, 32, kind, planes, blocks=1)


@both
def test_the_order_of_threads_changes_no_bit(library, planes):
    first, second = (run(library, 3, 130, 24, planes=planes, blocks=1, seed=seed) for seed in (1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@both
def test_values_far_from_zero(library, planes):
    """Squares about anything but a value near them would cancel."""
    run(library, 5, 131, 10, planes=planes, far=1000, wanted="", blocks=1)
