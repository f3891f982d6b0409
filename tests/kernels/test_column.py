"""The column kernel with toy programs, on the emulator, against sums in float64."""

from __future__ import annotations

import itertools

import pytest
import torch

from fusegen.emulate import Buffer, EmulationError
from tests.kernels.building import compiled

SOURCE = """
#include "column_programs.cuh"
#include "../support/kernels/column_launch.cuh"
#include "../support/kernels/l2_launch.cuh"

template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t run(const P& p, const Shapes& shapes) {
  const Column tile = column_tile<kFirst, kVec, kPacked>(p, LaunchContext{shapes, kH100, p.rows, 0, nullptr});
  if (!tile.fits) return cudaErrorInvalidConfiguration;
  return launch_column<kFirst, kVec, kPacked>(p, tile, nullptr);
}
template <int kFirst, class P>
cudaError_t run(const P& p, bool packed, const Shapes& shapes) {
  constexpr int kVec = kVectorOf<typename P::T, P::kColumnValues>;
  return packed ? run<kFirst, kVec, true>(p, shapes) : run<kFirst, kVec, false>(p, shapes);
}

extern "C" int column(
    int program, const void* r0, const void* r1, const void* r2, const void* r3, const void* r4, const void* r5,
    void* w0, void* w1, void* w2, void* w3, void* w4, void* w5, void* w6, void* w7, int64_t rows, int64_t channels,
    int64_t groups, int64_t dtype, int64_t packed, int64_t width, int64_t cluster) {
  const Given given{{r0, r1, r2, r3, r4, r5}, {w0, w1, w2, w3, w4, w5, w6, w7}, rows, channels, groups, 1e-5, 0.25};
  Shapes shapes;
  shapes.schedule = kPersistent;
  shapes.column_threads_per_row = width;
  shapes.column_cluster = cluster;
  if (program == 2) return run<1>(make_grouped<float>(given), packed, shapes);
#define FUSEGEN_CASE(number, make, ...) \\
  if (program == number) return run<0>(make<__VA_ARGS__>(given), packed, shapes);
  if (dtype == 0) {
    FUSEGEN_CASE(0, make_normalise, float, float, float)
    FUSEGEN_CASE(1, make_gradient, float, float, float)
  } else if (dtype == 1) {
    FUSEGEN_CASE(0, make_normalise, __nv_bfloat16, __nv_bfloat16, float)
    FUSEGEN_CASE(1, make_gradient, __nv_bfloat16, float, float)
  } else {
    FUSEGEN_CASE(0, make_normalise, double, double, double)
    FUSEGEN_CASE(1, make_gradient, double, double, double)
  }
  return cudaErrorInvalidValue;
}

// What a tile is chosen by.
extern "C" int column_work(int program, int64_t* found) {
  const auto fill = [&](const ColumnWork& work) {
    const int64_t values[] = {work.element, work.narrowest, work.sums, work.exchange, work.moved, work.again,
                              work.resident};
    for (int i = 0; i < 7; ++i) found[i] = values[i];
  };
  if (program == 0) fill(l2_work<Normalise<__nv_bfloat16, float, float>>());
  if (program == 1) fill(l2_work<Gradient<__nv_bfloat16, float, float>>());
  if (program == 2) fill(fusegen::column_work<Grouped<float>, 1>());
  return 0;
}
"""
DTYPES = [  # of T, Out, Param and Acc, by program
    [(torch.float32,) * 4, (torch.float32,) * 4],
    [(torch.bfloat16, torch.bfloat16, torch.float32, torch.float32), (torch.bfloat16, *(torch.float32,) * 3)],
    [(torch.float64,) * 4, (torch.float64,) * 4],
]
VECTORS = [4, 4, 2]  # columns of a thread, by dtype


def values(*shape: int, seed: int, dtype: torch.dtype, shift: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) + shift).to(dtype)


def close(found: Buffer, expected: torch.Tensor) -> bool:
    """To the precision of the type that was stored, around float32's error of a sum."""
    error = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 1e-2}[found.dtype]
    got = found.tensor().double()
    return bool(((got - expected).abs() <= error * (1 + expected.abs().max())).all())


class Normalise:
    """Inputs, results and what is expected of them; whether the optional results are wanted."""

    def __init__(self, rows: int, channels: int, dtype: int, optional: bool = True, offset: int = 0):
        t, out, param, acc = DTYPES[dtype][0]
        self.rows, self.channels = rows, channels
        self.x = values(rows, channels, seed=1, dtype=t, shift=3.0)
        self.weight, self.bias = (values(channels, seed=s, dtype=param) for s in (2, 3))
        self.before = values(channels, seed=4, dtype=param)
        self.reads = [
            Buffer.from_tensor(x, readonly=True, offset_bytes=offset) for x in (self.x, self.weight, self.bias)
        ]
        self.y = Buffer.poisoned([rows, channels], out, offset_bytes=offset)
        self.mean, self.rstd, self.scale = (Buffer.poisoned([channels], acc) for _ in range(3))
        self.running = Buffer.from_tensor(self.before) if optional else None
        self.batches = Buffer.from_tensor(torch.tensor([5])) if optional else None
        self.partials = Buffer.poisoned([(rows // 256 + 1) * 2 * channels], acc)
        self.writes = [self.y, self.mean, self.rstd, self.running, self.batches, self.partials, self.scale, None]

    def check(self) -> None:
        x, weight, bias = self.x.double(), self.weight.double(), self.bias.double()
        mean = x.mean(0)
        rstd = (x.var(0, correction=0) + 1e-5).rsqrt()
        assert close(self.mean, mean)
        assert close(self.rstd, rstd)
        assert close(self.y, (x - mean) * rstd * weight + 2 * bias)
        if self.running and self.batches:
            assert close(self.running, 0.75 * self.before.double() + 0.25 * mean)
            assert self.batches.tensor().item() == 6


class Gradient:
    """The same of the backward pass."""

    def __init__(self, rows: int, channels: int, dtype: int, optional: bool = True, offset: int = 0):
        t, out, param, acc = DTYPES[dtype][1]
        self.rows, self.channels = rows, channels
        self.x = values(rows, channels, seed=1, dtype=t, shift=0.5)
        self.grad, self.gate = (values(rows, channels, seed=s, dtype=out) for s in (2, 3))
        self.weight = values(channels, seed=4, dtype=param)
        inputs = (self.x, self.grad, self.gate, self.weight)
        self.reads = [Buffer.from_tensor(x, readonly=True, offset_bytes=offset) for x in inputs]
        self.grad_x = Buffer.poisoned([rows, channels], t, offset_bytes=offset)
        self.grad_gate = Buffer.poisoned([rows, channels], out, offset_bytes=offset) if optional else None
        self.d_sum, self.x_m2, self.slope, self.out_sum = (Buffer.poisoned([channels], acc) for _ in range(4))
        self.xd_sum = Buffer.poisoned([channels], param) if optional else None
        self.partials = Buffer.poisoned([(rows // 256 + 1) * 5 * channels], acc)
        sums = [self.d_sum, self.x_m2, self.xd_sum, self.partials, self.slope, self.out_sum]
        self.writes = [self.grad_x, self.grad_gate, *sums]

    def check(self, *, sums_of_last_pass: bool = True) -> torch.Tensor:
        """Returns the sums of the last pass."""
        x, d = self.x.double(), self.grad.double() * self.gate.double() * self.weight.double()
        slope = ((x * d).sum(0) + x.sum(0)) / self.rows
        grad = d - (x * slope + d.sum(0) / self.rows)
        assert close(self.d_sum, d.sum(0))
        assert close(self.x_m2, x.var(0, correction=0) * self.rows)
        assert close(self.grad_x, grad)
        if self.grad_gate and self.xd_sum:
            assert close(self.grad_gate, d)
            assert close(self.xd_sum, 2 * (x * d).sum(0))
        if sums_of_last_pass:
            assert close(self.out_sum, grad.sum(0))
        return grad.sum(0)


class Grouped:
    """The same of passes 1 and 2 with values of rows and groups."""

    def __init__(self, rows: int, channels: int, groups: int):
        self.rows, self.channels, self.groups = rows, channels, groups
        f32 = torch.float32
        self.x, self.z = (values(rows, channels, seed=s, dtype=f32) for s in (1, 2))
        self.bias, self.row = values(channels, seed=3, dtype=f32), values(rows, seed=4, dtype=f32)
        self.scale, self.offset = (values(rows, groups, seed=s, dtype=f32) for s in (5, 6))
        inputs = (self.x, self.z, self.bias, self.row, self.scale, self.offset)
        self.reads = [Buffer.from_tensor(x, readonly=True) for x in inputs]
        self.y = Buffer.poisoned([rows, channels], f32)
        self.writes = [self.y, *[None] * 7]

    def check(self) -> None:
        each = [tensor.double() for tensor in (self.x, self.z, self.bias, self.row, self.scale, self.offset)]
        x, z, bias, row, scale, offset = each
        scale, offset = (g.repeat_interleave(self.channels // self.groups, 1) for g in (scale, offset))
        sums = ((x + 2 * row[:, None]) * scale + bias).sum(0)
        assert close(self.y, x * sums + z * scale + offset + bias)


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("column"), emulation_cache)


@pytest.fixture(scope="module")
def run(library):
    def run(program, case, dtype=0, packed=False, width=0, cluster=0, seed=0):
        reads = [*case.reads, *[None] * 6][:6]
        sizes = case.rows, case.channels, getattr(case, "groups", 1), dtype, int(packed), width, cluster
        library.call("column", program, *reads, *case.writes, *sizes, seed=seed)

    return run


SIZES = [(1, 1), (2, 3), (5, 130), (33, 7), (301, 24)]
PROGRAM = {0: Normalise, 1: Gradient}


@pytest.mark.parametrize("dtype", [0, 1, 2], ids=["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("program", [0, 1])
def test_single_elements(run, program, dtype):
    for (rows, channels), cluster in itertools.product(SIZES, (0, 1, 4)):
        element = DTYPES[dtype][program][1].itemsize
        case = PROGRAM[program](rows, channels, dtype, optional=cluster == 4, offset=max(element, 4) % 16)
        run(program, case, dtype, cluster=cluster, seed=rows)
        case.check()


@pytest.mark.parametrize("dtype", [0, 1, 2], ids=["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("program", [0, 1])
def test_aligned_vectors(run, program, dtype):
    vector = VECTORS[dtype]
    for rows, vectors, (width, cluster) in itertools.product((1, 2, 65, 301), (1, 5), ((0, 0), (4, 1), (2, 8))):
        if vectors == 1 and width == 4:
            continue  # no tile is wider than the channels
        case = PROGRAM[program](rows, vectors * vector, dtype, optional=width == 2)
        run(program, case, dtype, packed=True, width=width, cluster=cluster, seed=rows)
        case.check()


@pytest.mark.parametrize(("channels", "groups", "packed"), [(24, 3, True), (8, 1, True), (21, 7, False), (9, 3, False)])
def test_values_of_rows_and_groups(run, channels, groups, packed):
    for rows, cluster in itertools.product((1, 3, 70), (1, 2)):
        case = Grouped(rows, channels, groups)
        run(2, case, packed=packed, cluster=cluster)
        case.check()


def test_the_same_bits_in_any_order_of_threads(run):
    found = []
    for seed in range(3):
        case = Gradient(77, 12, 0)
        run(1, case, packed=True, cluster=2, seed=seed)
        found.append(case.grad_x.tensor())
    assert all(torch.equal(found[0], other) for other in found)


def test_a_tile_that_fits_no_shared_memory(run):
    with pytest.raises(EmulationError, match="CUDA error"):
        run(0, Normalise(20_000, 4, 2), dtype=2, packed=True, cluster=1)


def test_what_tiles_are_chosen_by(library):
    def work(program):
        found = Buffer.poisoned([7], torch.int64)
        library.call("column_work", program, found)
        return found.tensor().tolist()

    # Bytes of a tile's element, of its narrowest tensor, of sums of a warp, of a block of a cluster; tensors that are
    # moved, those that the two-pass schedule reads again, bytes that are read again.
    assert work(0) == [2, 2, 8, 8, 2, 1, 2]
    assert work(1) == [2 + 4, 2, 8, 20, 5, 3, 10]
    assert work(2) == [8, 4, 4, 4, 3, 1, 0]
