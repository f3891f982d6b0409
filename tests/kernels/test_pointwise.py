"""The kernels of the two-pass schedule, with small programs, against float64."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.kernels.building import compiled

DTYPES = (torch.float32, torch.bfloat16)
SOURCE = '#include "pointwise_programs.cuh"\n'
SIZES = [  # rows, channels, groups
    (1, 1, 1),
    (2, 3, 1),
    (7, 5, 5),
    (33, 12, 3),
    (65, 6, 2),
    (300, 40, 5),
    (40, 264, 2),
    (3, 1025, 5),
    (130, 7, 1),
]
LONG = [(2, 16400, 2), (1, 20481, 1)]  # of which a thread has several vectors


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache, checked=True)


@pytest.fixture(scope="module")
def fast_library(tmp_path_factory, emulation_cache):
    """Without a look at every access, for sizes that take long."""
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache, checked=False)


class Values:
    """Tensors of one call, in memory and in float64."""

    def __init__(self, dtype: torch.dtype, misaligned: bool):
        self.dtype, self.offset = dtype, dtype.itemsize if misaligned else 0
        self.generator = torch.Generator().manual_seed(5)
        self.outputs: list[Buffer] = []

    def given(self, *shape: int, dtype: torch.dtype | None = None) -> tuple[Buffer, torch.Tensor]:
        value = torch.randn(*shape, generator=self.generator).to(dtype or self.dtype)
        offset = self.offset if value.dtype == self.dtype else 0
        return Buffer.from_tensor(value, offset_bytes=offset, readonly=True), value.double()

    def made(self, *shape: int, dtype: torch.dtype | None = None) -> Buffer:
        offset = self.offset if dtype is None else 0
        return Buffer.poisoned(shape, dtype or self.dtype, offset_bytes=offset)


def close(found: Buffer, expected: torch.Tensor, length: int = 1) -> None:
    """Whether it is what is expected, of sums of so many values."""
    rounding = 2e-2 if found.dtype == torch.bfloat16 else 3e-5
    scale = expected.abs().max().item() + length**0.5
    torch.testing.assert_close(found.tensor().double(), expected, rtol=rounding, atol=scale * rounding / 10)


def expanded(values: torch.Tensor, channels: int) -> torch.Tensor:
    """A value of each group, for each of its channels."""
    return values.repeat_interleave(channels // values.shape[1], dim=1)


def run_columns(library, rows, channels, groups, dtype, *, misaligned=False, optional=True, blocks=0, seed=0):
    values, acc = Values(dtype, misaligned), torch.float32
    a_, a = values.given(rows, channels)
    b_, b = values.given(rows, channels)
    bias_, bias = values.given(channels)
    shift_, shift = values.given(channels)
    scale_, scale = values.given(rows)
    offset_, offset = values.given(rows, groups, dtype=acc)
    y, sum_ = values.made(rows, channels), values.made(channels)
    mean, inverse, square, magnitude, y_sum = (values.made(channels, dtype=acc) for _ in range(5))
    total, weighted = values.made(1, dtype=acc), values.made(1, dtype=acc)
    count = Buffer.from_tensor(torch.tensor([41]))
    partials = values.made(5 * 8 * 1000 * channels, dtype=acc)
    wanted = (y, magnitude) if optional else (None, None)
    library.call(
        "columns", DTYPES.index(dtype), a_, b_, bias_, shift_ if optional else None, scale_, offset_, wanted[0], mean,
        inverse, square, sum_, wanted[1], y_sum, total, weighted, count, partials, rows, channels, groups, blocks,
        seed=seed,
    )  # fmt: skip

    scaled = (a + bias + 1) * scale[:, None] / 2
    h = scaled + 2 * expanded(offset, channels)
    close(mean, h.mean(0))
    expected_inverse = 1 / (1 + h.var(0, unbiased=False))
    close(inverse, expected_inverse)
    close(square, (h * h).sum(0) + (shift if optional else 0), rows)
    close(sum_, h.sum(0), rows)
    y_expected = (scaled - h.mean(0)) * expected_inverse + b
    y_sum_expected = y_expected.sum(0)
    close(y_sum, y_sum_expected, rows)
    close(total, y_sum_expected.sum()[None] / 2, rows * channels)
    close(weighted, (y_sum_expected * (bias + 1)).sum()[None], rows * channels)
    assert count.tensor().item() == 42
    if optional:
        close(y, y_expected)
        close(magnitude, h.abs().sum(0) + bias + 1, rows)
    return [each.tensor() for each in (y, mean, inverse, square, sum_, magnitude, y_sum, total, weighted)]


def run_rows(library, rows, channels, groups, dtype, by_group, *, misaligned=False, optional=True, blocks=0, seed=0):
    values, acc = Values(dtype, misaligned), torch.float32
    a_, a = values.given(rows, channels)
    weight_, weight = values.given(channels)
    bias_, bias = values.given(channels, dtype=acc)
    scale_, scale = values.given(rows)
    offset_, offset = values.given(rows, groups, dtype=acc)
    segments = groups if by_group else 1
    y, sum_ = values.made(rows, channels), values.made(rows, segments)
    mean, m2, square, magnitude = (values.made(rows, segments, dtype=acc) for _ in range(4))
    library.call(
        "rows", DTYPES.index(dtype), a_, weight_, bias_ if optional else None, scale_, offset_, y, mean, m2, square,
        sum_, magnitude if optional else None, rows, channels, groups, int(by_group), blocks, seed=seed,
    )  # fmt: skip

    h = 2 * a * weight + (bias if optional else 0) + scale[:, None] / 2 + 2 * expanded(offset, channels)
    each = h.reshape(rows, segments, -1)
    length = each.shape[2]
    close(mean, each.mean(2))
    close(m2, each.var(2, unbiased=False) * length, length)
    close(square, (each * each).sum(2), length)
    close(sum_, each.sum(2), length)
    close(y, (each - each.mean(2, keepdim=True)).reshape(rows, channels))
    if optional:
        close(magnitude, each.abs().sum(2) + scale[:, None] / 2, length)
    return [each.tensor() for each in (y, mean, m2, square, sum_, magnitude)]


@pytest.mark.parametrize("misaligned", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "channels", "groups"), SIZES)
def test_sums_of_columns_and_what_follows(library, rows, channels, groups, dtype, misaligned):
    run_columns(library, rows, channels, groups, dtype, misaligned=misaligned)


@pytest.mark.parametrize("by_group", [False, True])
@pytest.mark.parametrize("misaligned", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "channels", "groups"), SIZES)
def test_sums_of_rows_and_what_follows(library, rows, channels, groups, dtype, misaligned, by_group):
    run_rows(library, rows, channels, groups, dtype, by_group, misaligned=misaligned)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "channels", "groups"), SIZES[3:5])
def test_what_is_not_given_or_wanted(library, rows, channels, groups, dtype):
    run_columns(library, rows, channels, groups, dtype, optional=False)
    run_rows(library, rows, channels, groups, dtype, True, optional=False)


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "channels", "groups"), LONG)
def test_blocks_that_share_a_row(fast_library, rows, channels, groups, dtype, blocks):
    run_rows(fast_library, rows, channels, groups, dtype, groups > 1, blocks=blocks)


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("channels", [8, 9])
def test_many_partial_results(fast_library, channels, blocks):
    run_columns(fast_library, 3001, channels, 1, torch.float32, blocks=blocks)


def test_the_order_of_threads_changes_no_bit(library):
    for run in (run_columns, lambda *args, **kwargs: run_rows(*args, True, **kwargs)):
        first, second = (run(library, 33, 12, 3, torch.float32, seed=seed) for seed in (1, 2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_equal_values_have_no_variance(library):
    """Far from zero, where squares about anything but a value near them would cancel."""
    rows, channels = 300, 10
    far = torch.full((rows, channels), 1000.5)
    a, b = Buffer.from_tensor(far, readonly=True), Buffer.from_tensor(far, readonly=True)
    zero = Buffer.from_tensor(torch.zeros(channels), readonly=True)
    scale = Buffer.from_tensor(torch.full((rows,), 2.0), readonly=True)
    offset = Buffer.from_tensor(torch.zeros(rows), readonly=True)
    y, partials = Buffer.poisoned([rows, channels], torch.float32), Buffer.poisoned([10**5], torch.float32)
    made = [Buffer.poisoned([channels], torch.float32) for _ in range(6)]
    scalars = [Buffer.poisoned([1], torch.float32) for _ in range(2)]
    count = Buffer.from_tensor(torch.tensor([0]))
    library.call(
        "columns", 0, a, b, zero, None, scale, offset, y, *made, *scalars, count, partials, rows, channels, 1, 0
    )
    assert torch.equal(made[0].tensor(), torch.full((channels,), 1001.5))
    assert torch.equal(made[1].tensor(), torch.ones(channels))
