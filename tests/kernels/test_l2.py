"""The kernel whose columns stay in the L2, with toy programs, on the emulator, against sums in float64."""

from __future__ import annotations

import itertools

import pytest
import torch

from fusegen.emulate import Buffer
from tests.kernels.building import compiled
from tests.kernels.test_column import DTYPES, PROGRAM, VECTORS, Gradient, Normalise, close

SOURCE = """
#include "column_programs.cuh"
#include "../support/kernels/l2_launch.cuh"

template <class P>
cudaError_t run(const P& p, const Shapes& shapes, unsigned* counters, int64_t most) {
  constexpr int kVec = kVectorOf<typename P::T, P::kColumnValues>;
  const L2Shape shape = l2_shape<kVec, true>(p, LaunchContext{shapes, kH100, p.rows, 0, nullptr});
  if (!shape.fits || shape.tiles > most) return cudaErrorInvalidConfiguration;
  return launch_l2<kVec>(p, shape, counters, nullptr);
}

extern "C" int l2(
    int program, const void* r0, const void* r1, const void* r2, const void* r3, void* w0, void* w1, void* w2, void* w3,
    void* w4, void* w5, void* w6, void* w7, void* counters, int64_t groups, int64_t rows, int64_t channels,
    int64_t dtype, int64_t lag) {
  const Given given{{r0, r1, r2, r3}, {w0, w1, w2, w3, w4, w5, w6, w7}, rows, channels, 1, 1e-5, 0.25};
  Shapes shapes;
  shapes.schedule = kL2;
  shapes.l2_lag = lag;
#define FUSEGEN_CASE(number, make, ...) \\
  if (program == number) return run(make<__VA_ARGS__>(given), shapes, static_cast<unsigned*>(counters), groups);
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

// What the launch bounds are made of.
extern "C" int l2_bounds(int, int64_t* found) {
  using namespace fusegen;
  using Half = __nv_bfloat16;
  const int64_t values[] = {l2_rows_together<Normalise<float, float, float>, 0>(),
                            l2_rows_together<Normalise<float, float, float>, 1>(),
                            l2_rows_together<Gradient<float, float, float>, 0>(),
                            l2_blocks<Normalise<float, float, float>>(), l2_blocks<Normalise<Half, float, float>>(),
                            l2_blocks<Gradient<float, float, float>>(), l2_blocks<Gradient<Half, float, float>>()};
  for (int i = 0; i < 7; ++i) found[i] = values[i];
  return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("l2"), emulation_cache)


@pytest.fixture(scope="module")
def run(library):
    def run(program, case, dtype=0, lag=0, seed=0):
        groups = -(-case.channels * DTYPES[dtype][program][0].itemsize // 128)
        counters = Buffer.poisoned([groups], torch.int32)
        reads = [*case.reads, *[None] * 4][:4]
        sizes = groups, case.rows, case.channels, dtype, lag
        library.call("l2", program, *reads, *case.writes, counters, *sizes, seed=seed)

    return run


@pytest.mark.parametrize("dtype", [0, 1, 2], ids=["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("program", [0, 1])
def test_results(run, program, dtype):
    vector = VECTORS[dtype]
    for rows, vectors, lag in itertools.product((1, 255, 257, 600), (1, 37), (0, 1)):
        case = PROGRAM[program](rows, vectors * vector, dtype, optional=lag == 1)
        run(program, case, dtype, lag, seed=rows)
        if isinstance(case, Normalise):
            case.check()
            continue
        sums = case.check(sums_of_last_pass=False)
        # The last pass leaves one sum for each slice of rows and channel, where those of pass 0 were.
        slices = -(-rows // 256)
        found = case.partials.tensor()[: slices * case.channels].reshape(slices, -1).double().sum(0)
        total = Buffer.from_tensor(found.to(case.partials.dtype))
        assert close(total, sums)


def test_the_same_bits_in_any_order_of_threads(run):
    found = []
    for seed in range(3):
        case = Gradient(300, 68, 0)
        run(1, case, seed=seed)
        found.append(case.grad_x.tensor())
    assert all(torch.equal(found[0], other) for other in found)


def test_launch_bounds(library):
    found = Buffer.poisoned([7], torch.int64)
    library.call("l2_bounds", 0, found)
    assert found.tensor().tolist() == [8, 8, 2, 4, 5, 3, 4]
