"""The row kernel with small programs: each of its instances, on sizes that fit vectors and on sizes that do not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from fusegen.emulate import Buffer, EmulatedLibrary
from tests.kernels.building import compiled

SOURCE = """
#include <algorithm>

#include "../support/kernels/row_launch.cuh"
#include "row_programs.cuh"

namespace {

// Launches, or only says how: items, full block, blocks of a cluster, full vector, partial results of a column.
template <int kFirst, int kVec, bool kPacked, class P>
int launched(const P& p, int64_t row_share, int64_t vector_end, int64_t launches, int64_t* found) {
  LaunchContext context{{}, kSmall, p.rows, vector_end, nullptr};
  context.shapes.row_share = row_share;
  const RowLaunch row = row_fit<kFirst, kVec, kPacked>(p, context);
  const int64_t fields[] = {row.items, row.full_block, row.cluster, row.full_vector, row.grid.y};
  std::copy(fields, fields + 5, found);
  if (!launches || row.items == 0) return 0;
  return launch_row<kFirst, kVec, kPacked>(p, row, context);
}

template <int kFirst, int kVec, class P>
int launched(const P& p, int64_t elements, int64_t vectors, int64_t row_share, int64_t launches, int64_t* found) {
  if (elements && vectors && p.group_length % kVec == 0) {
    return launched<kFirst, kVec, true>(p, row_share, 0, launches, found);
  }
  return launched<kFirst, kVec, false>(p, row_share, elements ? p.rows * p.channels : 0, launches, found);
}

struct Arguments {
  int64_t rows, channels, groups, row_share, launches;
  int64_t* found;
};

template <typename T, bool kOfRows>
int normalised(const void* x, const void* z, const void* bias, const void* weight, const void* scale,
               const void* offset, void* y, void* w, void* mean, void* rstd, void* squares, const Arguments& a) {
  Normalised<T, kOfRows> p;
  static_cast<Sizes&>(p) = {a.rows, a.channels, a.groups, a.channels / a.groups};
  p.reads = {static_cast<const T*>(x), static_cast<const T*>(z)};
  p.writes = {static_cast<T*>(y), static_cast<T*>(w)};
  p.bias_ptr = static_cast<const T*>(bias);
  p.weight_ptr = static_cast<const T*>(weight);
  p.scale_ptr = static_cast<const float*>(scale);
  p.offset_ptr = static_cast<const float*>(offset);
  p.mean_ptr = static_cast<float*>(mean);
  p.rstd_ptr = static_cast<float*>(rstd);
  p.squares_ptr = static_cast<float*>(squares);
  p.partials = nullptr;
  return launched<0, kVectorOf<T, 2>>(
      p, aligned_to_16(x, z, y, w), aligned_to_16(bias, weight), a.row_share, a.launches, a.found);
}

template <typename T, bool kOfRows>
int gradient(const void* x, const void* grad, const void* weight, const void* center, const void* factor,
             const void* rstd, void* dx, void* shift, void* partials, const Arguments& a) {
  Gradient<T, kOfRows> p;
  static_cast<Sizes&>(p) = {a.rows, a.channels, a.groups, a.channels / a.groups};
  p.reads = {static_cast<const T*>(x), static_cast<const T*>(grad), nullptr};
  p.writes = {static_cast<T*>(dx)};
  p.weight_ptr = static_cast<const T*>(weight);
  p.center_ptr = static_cast<const float*>(center);
  p.factor_ptr = static_cast<const float*>(factor);
  p.rstd_ptr = static_cast<const float*>(rstd);
  p.shift_ptr = static_cast<float*>(shift);
  p.partials = static_cast<float*>(partials);
  return launched<1, kVectorOf<T, 5>>(
      p, aligned_to_16(x, grad, dx), aligned_to_16(weight, center), a.row_share, a.launches, a.found);
}

}  // namespace

extern "C" int run_normalised(
    int of_rows, int64_t bytes, const void* x, const void* z, const void* bias, const void* weight, const void* scale,
    const void* offset, void* y, void* w, void* mean, void* rstd, void* squares, int64_t rows, int64_t channels,
    int64_t groups, int64_t row_share, int64_t launches, int64_t* found) {
  const Arguments a{rows, channels, groups, row_share, launches, found};
  const auto run = of_rows ? bytes == 2 ? normalised<__nv_bfloat16, true> : normalised<float, true>
                           : bytes == 2 ? normalised<__nv_bfloat16, false> : normalised<float, false>;
  return run(x, z, bias, weight, scale, offset, y, w, mean, rstd, squares, a);
}

extern "C" int run_gradient(
    int of_rows, int64_t bytes, const void* x, const void* grad, const void* weight, const void* center,
    const void* factor, const void* rstd, void* dx, void* shift, void* partials, int64_t rows, int64_t channels,
    int64_t groups, int64_t row_share, int64_t launches, int64_t* found) {
  const Arguments a{rows, channels, groups, row_share, launches, found};
  const auto run = of_rows ? bytes == 2 ? gradient<__nv_bfloat16, true> : gradient<float, true>
                           : bytes == 2 ? gradient<__nv_bfloat16, false> : gradient<float, false>;
  return run(x, grad, weight, center, factor, rstd, dx, shift, partials, a);
}
"""
F32, BF16 = torch.float32, torch.bfloat16
# How far statistics and column sums, which are float32, and elements may be off.
STATISTICS, COLUMN_SUMS = 2e-6, 4e-6
ELEMENTS = {F32: 1e-5, BF16: 8e-3}


@dataclass(frozen=True)
class Case:
    """Sizes, and the instance of the kernel that takes them: items, full block, blocks of a cluster, full
    vector."""

    of_rows: bool
    dtype: torch.dtype
    rows: int
    channels: int
    groups: int
    instance: tuple[int, int, int, int]
    row_share: int = 0
    offset: int = 0  # elements after a multiple of 16 bytes at which tensors of the dtype begin
    absent: frozenset[str] = frozenset()  # tensors whose pointers are null

    @property
    def segments(self) -> int:
        """Of a row."""
        return 1 if self.of_rows else self.groups

    def __str__(self) -> str:
        kind = "rows" if self.of_rows else "groups"
        type_ = str(self.dtype).removeprefix("torch.")
        also = [f"offset{self.offset}"] * (self.offset > 0) + [f"no-{name}" for name in sorted(self.absent)]
        return "-".join([kind, type_, f"{self.rows}x{self.channels}", f"{self.groups}g", *also])


ONE, TWO, FULL_BLOCK, FULL_VECTOR = (1, 0, 1, 0), (2, 0, 1, 0), (2, 1, 1, 0), (1, 0, 1, 1)
NORMALISED = [
    Case(True, F32, 1, 1, 1, ONE),
    Case(True, F32, 7, 12, 3, ONE),
    Case(True, F32, 33, 13, 13, ONE),
    Case(True, BF16, 5, 24, 3, ONE),
    Case(True, BF16, 5, 21, 3, ONE, offset=3),
    Case(True, F32, 70, 64, 2, TWO, row_share=2),
    Case(True, F32, 3, 1001, 7, ONE),
    Case(True, F32, 3, 1029, 7, TWO),
    Case(True, BF16, 3, 2050, 2, TWO, offset=1),
    Case(True, F32, 2, 640, 1, ONE, absent=frozenset({"bias", "w", "rstd"})),
    Case(True, F32, 2, 3392, 2, FULL_BLOCK),
    Case(True, BF16, 2, 4201, 1, FULL_BLOCK),
    Case(False, F32, 3, 9, 9, ONE),
    Case(False, F32, 9, 96, 3, ONE),
    Case(False, BF16, 9, 105, 5, ONE),
    Case(False, F32, 4, 2 * 513, 2, ONE, offset=1),
    Case(False, BF16, 3, 2 * 2064, 2, TWO, absent=frozenset({"bias", "y", "mean"})),
    Case(False, F32, 2, 2 * 3400, 2, FULL_BLOCK),
]
GRADIENT = [
    Case(True, F32, 1, 1, 1, ONE),
    Case(True, F32, 41, 20, 5, ONE),
    Case(True, F32, 41, 21, 7, ONE, offset=1),
    Case(True, BF16, 50, 40, 5, ONE),
    Case(True, BF16, 50, 48, 6, FULL_VECTOR, row_share=2),
    Case(True, BF16, 11, 51, 3, FULL_VECTOR, row_share=2),
    Case(True, F32, 5, 1536, 2, TWO),
    Case(True, F32, 5, 1537, 1, TWO, absent=frozenset({"dx"})),
    Case(True, BF16, 64, 2064, 2, FULL_BLOCK),
    Case(True, F32, 3, 5002, 2, (2, 0, 8, 0)),
    Case(False, F32, 23, 12, 12, ONE),
    Case(False, F32, 23, 36, 3, ONE),
    Case(False, BF16, 23, 35, 5, ONE, offset=5),
    Case(False, BF16, 30, 96, 4, FULL_VECTOR, row_share=2),
    Case(False, F32, 5, 2 * 1540, 2, TWO, absent=frozenset({"shift"})),
    Case(False, BF16, 66, 2061, 1, FULL_BLOCK),
    Case(False, BF16, 2, 2 * 4808, 2, (2, 0, 8, 0)),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache) -> EmulatedLibrary:
    return compiled(SOURCE, tmp_path_factory.mktemp("row"), emulation_cache)


class Given:
    """Random tensors of a case as the kernel gets them, and in float64."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.generator = torch.Generator().manual_seed(case.rows * 10007 + case.channels)
        self.buffers: list[Buffer | None] = []

    def __call__(self, *shape: int, name: str = "", dtype: torch.dtype = F32, around: float = 0.0) -> torch.Tensor:
        values = (torch.randn(shape, generator=self.generator, dtype=torch.float64) + around).to(dtype)
        if name in self.case.absent:
            self.buffers.append(None)
            return torch.zeros(shape, dtype=torch.float64)
        self.buffers.append(Buffer.from_tensor(values, offset_bytes=self._offset(dtype), readonly=True))
        return values.double()

    def result(self, *shape: int, name: str = "", dtype: torch.dtype = F32) -> Buffer | None:
        wanted = name not in self.case.absent
        buffer = Buffer.poisoned(shape, dtype, offset_bytes=self._offset(dtype)) if wanted else None
        self.buffers.append(buffer)
        return buffer

    def _offset(self, dtype: torch.dtype) -> int:
        return self.case.offset * self.case.dtype.itemsize if dtype == self.case.dtype else 0


def call(
    library: EmulatedLibrary, name: str, case: Case, buffers: list[Buffer | None], *, launches: bool, seed: int = 0
):
    """The launch of the case: the instance, and partial results of a column."""
    found = Buffer.poisoned([5], torch.int64)
    sizes = case.rows, case.channels, case.groups, case.row_share, int(launches)
    library.call(name, int(case.of_rows), case.dtype.itemsize, *buffers, *sizes, found, seed=seed)
    *instance, partials = found.tensor().tolist()
    return tuple(instance), partials


def run_normalised(library: EmulatedLibrary, case: Case, seed: int = 0):
    """What the kernel is given, and what it stores."""
    given, rows, channels = Given(case), case.rows, case.channels
    tensors = [given(rows, channels, dtype=case.dtype, around=around) for around in (3.0, -1.0)]
    tensors += [given(channels, name=name, dtype=case.dtype) for name in ("bias", "weight")]
    tensors += [given(rows), given(rows, case.groups)]
    results = [given.result(rows, channels, name=name, dtype=case.dtype) for name in ("y", "w")]
    results += [given.result(rows, case.segments, name=name) for name in ("mean", "rstd", "squares")]
    assert call(library, "run_normalised", case, given.buffers, launches=True, seed=seed)[0] == case.instance
    return tensors, results


def run_gradient(library: EmulatedLibrary, case: Case, seed: int = 0):
    """The same, with partial results of columns in the end."""
    given, rows, channels = Given(case), case.rows, case.channels
    tensors = [given(rows, channels, dtype=case.dtype) for _ in range(2)]
    tensors += [given(channels, dtype=case.dtype), given(channels), given(rows), given(rows, case.groups)]
    results = [given.result(rows, channels, name="dx", dtype=case.dtype)]
    results += [given.result(rows, case.segments, name="shift")]
    instance, count = call(library, "run_gradient", case, [*given.buffers, None], launches=False)
    assert instance == case.instance
    results.append(given.result(count, 3, channels))
    call(library, "run_gradient", case, given.buffers, launches=True, seed=seed)
    return tensors, results


def check(found: Buffer | None, expected: torch.Tensor, tolerance: float, scale: torch.Tensor | float = 1.0) -> None:
    if found is not None:
        error = (found.tensor().double() - expected).abs()
        limit = tolerance * (expected.abs() + scale)
        assert bool((error <= limit).all()), f"{float((error / limit).max()):.3g} times the tolerance"


@pytest.mark.parametrize("case", NORMALISED, ids=str)
def test_statistics_and_results(library, case):
    (x, z, bias, weight, scale, offset), (y, w, mean, rstd, squares) = run_normalised(library, case)
    rows, channels, segments = case.rows, case.channels, case.segments
    u, zs = (each.reshape(rows, segments, -1) for each in (x + bias, z))
    u_mean, z_mean = u.mean(2, keepdim=True), zs.mean(2, keepdim=True)
    u_rstd = 1 / (u.var(2, keepdim=True, correction=0) + 0.1).sqrt()
    hat, dot = (u - u_mean) * u_rstd, (u * zs).mean(2, keepdim=True)
    shift = offset.repeat_interleave(channels // case.groups, 1) * 2
    scaled = (hat.reshape(rows, channels) * weight * 2 + shift) * (scale[:, None] + 1)
    check(mean, u_mean[:, :, 0], STATISTICS)
    check(rstd, u_rstd[:, :, 0], STATISTICS)
    check(squares, ((zs - z_mean) ** 2).sum(2), STATISTICS)
    check(y, (scaled.reshape(u.shape) + dot).reshape(rows, channels), ELEMENTS[case.dtype], 4.0)
    check(w, (zs - z_mean).reshape(rows, channels), ELEMENTS[case.dtype])


@pytest.mark.parametrize("case", [case for case in NORMALISED if not case.absent], ids=str)
def test_equal_values_have_no_variance(library, case):
    """Though their mean is rounded."""
    given = Given(case)
    third = torch.full((case.rows, case.channels), 1 / 3, dtype=torch.float64).to(case.dtype)
    given.buffers += [Buffer.from_tensor(third, offset_bytes=case.offset * case.dtype.itemsize) for _ in range(2)]
    given.buffers += [None] + [Buffer.from_tensor(torch.zeros(case.channels, dtype=case.dtype))]
    given(case.rows), given(case.rows, case.groups)
    for _ in range(2):
        given.result(case.rows, case.channels, dtype=case.dtype)
    mean, rstd, squares = (given.result(case.rows, case.segments) for _ in range(3))
    call(library, "run_normalised", case, given.buffers, launches=True)
    assert bool((squares.tensor() == 0).all())
    assert bool((rstd.tensor() == rstd.tensor()[0, 0]).all())
    check(mean, third.double()[:, : case.segments], 1e-7)


@pytest.mark.parametrize("case", GRADIENT, ids=str)
def test_sums_of_segments_and_of_columns(library, case):
    (x, grad, weight, center, factor, rstd), (dx, shift, partials) = run_gradient(library, case)
    rows, channels, segments = case.rows, case.channels, case.segments
    full_rstd = rstd.repeat_interleave(channels // case.groups, 1)
    hat, d = (x - center) * full_rstd, grad * weight
    means = [each.reshape(rows, segments, -1).mean(2) for each in (hat * d, d * factor[:, None])]
    slope, shifted = (each.repeat_interleave(channels // segments, 1) for each in means)
    expected = (d - hat * slope - shifted) * factor[:, None] * full_rstd
    check(shift, means[1], STATISTICS)
    check(dx, expected, ELEMENTS[case.dtype], 2.0)
    terms = torch.stack([grad, hat * grad, expected])
    found = partials.tensor().double().sum(0)
    assert bool(((found - terms.sum(1)).abs() <= COLUMN_SUMS * (terms.abs().sum(1) + 1)).all())


@pytest.mark.parametrize(
    "run, case",
    [(run_normalised, NORMALISED[7]), (run_normalised, NORMALISED[13])]
    + [(run_gradient, case) for case in GRADIENT if case.instance[2] > 1 or case.rows == 30],
    ids=lambda value: str(value) if isinstance(value, Case) else value.__name__,
)
def test_the_order_of_blocks_and_threads_does_not_matter(library, run, case):
    """To the bit: sums are exchanged in a fixed order, between the blocks of a cluster too."""
    first, *others = ([r.tensor() for r in run(library, case, seed)[1] if r is not None] for seed in range(3))
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))
