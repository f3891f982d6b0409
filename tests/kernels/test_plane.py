"""The plane kernel, with a small program, against float64."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.kernels.building import compiled
from tests.kernels.test_pointwise import Values, close
from tests.kernels.test_tile import KINDS

SOURCE = '#include "plane_programs.cuh"\n'
SIZES = [  # batch, positions, channels
    (1, 1, 1),
    (3, 1, 8),
    (2, 7, 5),
    (1, 33, 1),
    (2, 130, 12),
    (3, 64, 40),
    (2, 16, 264),  # parts of warps
    (5, 136, 24),
    (7, 196, 9),  # half a warp leaves fewer threads idle
    (2, 1030, 3),
    (1, 1048, 3),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache, checked=True)


def run(library, batch, positions, channels, kind="float32", *, misaligned=False, wanted="yw", blocks=0, seed=0, far=0):
    own, other = KINDS[kind]
    values, acc = Values(own, misaligned), torch.float64 if own == torch.float64 else torch.float32
    rows = batch * positions
    x_, x = values.given(batch, channels, positions)
    z_, z = values.given(batch, channels, positions, dtype=other)
    bias_, bias = values.given(channels)
    if far:
        x_ = Buffer.from_tensor(x_.tensor() + far, readonly=True)
        x = x_.tensor().double()
    y = values.made(batch, channels, positions) if "y" in wanted else None
    w = values.made(batch, channels, positions, dtype=other) if "w" in wanted else None
    mean, inverse, sum_, y_sum = (values.made(channels, dtype=acc) for _ in range(4))
    partials = values.made(3 * 16 * 40 * channels, dtype=acc)
    library.call(
        "planes", list(KINDS).index(kind), x_, z_, bias_, y, w, mean, inverse, sum_, y_sum, partials, batch, positions,
        channels, blocks, seed=seed,
    )  # fmt: skip

    h = x + bias[:, None] + z
    close(mean, h.mean((0, 2)))
    expected_inverse = 1 / (1 + h.var((0, 2), unbiased=False))
    close(inverse, expected_inverse)
    close(sum_, h.sum((0, 2)), rows)
    expected = (h - h.mean((0, 2), keepdim=True)) * expected_inverse[:, None]
    close(y_sum, (expected**2).sum((0, 2)), rows)
    if y:
        close(y, expected)
    if w:
        close(w, x * z)
    return [each.tensor() for each in (y, w, mean, inverse, sum_, y_sum) if each]


@pytest.mark.parametrize("misaligned", [False, True], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "positions", "channels"), SIZES)
def test_planes(library, batch, positions, channels, kind, misaligned):
    run(library, batch, positions, channels, kind, misaligned=misaligned)


@pytest.mark.parametrize("wanted", ["", "y", "w"])
def test_what_is_not_wanted(library, wanted):
    run(library, 2, 9, 12, wanted=wanted)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("positions", [400, 401])
def test_several_images_of_a_block(library, positions, kind):
    """The last block has fewer tiles: 8 blocks for 9 images."""
    run(library, 9, positions, 32, kind, blocks=1)


def test_the_order_of_threads_changes_no_bit(library):
    first, second = (run(library, 3, 130, 24, blocks=1, seed=seed) for seed in (1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_values_far_from_zero(library):
    """Squares about anything but a value near them would cancel."""
    run(library, 5, 131, 10, far=1000, wanted="", blocks=1)
