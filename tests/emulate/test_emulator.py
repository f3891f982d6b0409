"""What the threads of a block do together: correct kernels are right, and each kind of mistake is seen.

Even where accesses to memory are not looked at; test_accesses.py has the same kernels with that.
"""

import pytest
import torch

from fusegen.emulate import Buffer, EmulationError

SEEDS = range(6)

# Each row's sum, twice over with the same scratch memory, so that each of the barriers is needed.
REDUCTION = """
enum Mode {
  correct, no_first_barrier, no_second_barrier, divergent_barrier, shuffle_down, partial_mask, unwritten,
  shared_overflow, shared_canary, shared_underflow, exited_lane, barrier_after_exit, other_mask,
  other_call,
};

template <typename T>
__device__ __forceinline__ T block_sum(int mode, T value, T* scratch) {
  #pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += mode == shuffle_down ? __shfl_down_sync(0xffffffffu, value, offset)
                                  : __shfl_xor_sync(0xffffffffu, value, offset);
  }
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (threadIdx.x % 32 == (mode == shuffle_down ? 31 : 0) && (mode != unwritten || warp != 1)) {
    scratch[warp] = value;
  }
  if (mode == divergent_barrier && warp == 1) {
    __syncthreads();
  } else if (mode != no_first_barrier) {
    __syncthreads();
  }
  T sum = 0;
  for (int i = 0; i < warps; ++i) sum += scratch[i];
  if (mode != no_second_barrier) __syncthreads();
  return sum;
}

template <typename T>
__global__ void row_sums(int mode, const T* __restrict__ x, T* __restrict__ y, int64_t columns) {
  T* scratch = fusegen::shared_memory<T>();
  const unsigned thread = threadIdx.x;
  if (mode == shared_overflow && thread == 40) scratch[4 + blockDim.x] = 0;
  if (mode == shared_canary && thread == 40) *reinterpret_cast<unsigned char*>(scratch + blockDim.x / 32) = 0;
  if (mode == shared_underflow && thread == 40) scratch[-1] = 0;
  if (mode == partial_mask && thread % 32 < 16) __shfl_sync(0xffffffffu, thread, 0);
  if (mode == other_mask) __shfl_sync(thread % 32 < 16 ? 0xffffu : 0xffffffffu, thread, 0);
  if (mode == other_call && thread % 2) __shfl_sync(0xffffffffu, thread, 0);
  if (mode == other_call && thread % 2 == 0) {
    __shfl_sync(0xffffffffu, thread, 0);
  }
  if ((mode == exited_lane && thread == 33) || (mode == barrier_after_exit && thread >= 32)) return;
  if (mode == barrier_after_exit) {
    scratch[0] = 1;
    __syncthreads();
    y[blockIdx.x] = scratch[0];
    return;
  }
  T total = 0;
  for (int64_t i = thread; i < columns; i += blockDim.x) total += x[blockIdx.x * columns + i];
  const T sum = block_sum(mode, total, scratch);
  const T twice = block_sum(mode, sum / blockDim.x, scratch);
  if (thread == 0) y[blockIdx.x] = sum + twice;
}

extern "C" int row_sums_float(int mode, void* x, void* y, int64_t rows, int64_t columns, int64_t threads) {
  return fusegen::launch(row_sums<float>, rows, threads, threads / 32 * sizeof(float), nullptr, mode,
                         static_cast<float*>(x), static_cast<float*>(y), columns);
}

extern "C" int row_sums_double(int mode, void* x, void* y, int64_t rows, int64_t columns, int64_t threads) {
  return fusegen::launch(row_sums<double>, rows, threads, threads / 32 * sizeof(double), nullptr, mode,
                         static_cast<double*>(x), static_cast<double*>(y), columns);
}
"""

MODES = [word.strip() for word in REDUCTION.split("enum Mode {")[1].split("}")[0].split(",")]

# Every shuffle, with the lane's number as the value and the results side by side.
SHUFFLES = """
__global__ void shuffles(int width, int operand, int64_t* y) {
  const int lane = threadIdx.x;
  int64_t* row = y + ((blockIdx.x * blockDim.y + threadIdx.y) * 32 + lane) * 4;
  row[0] = static_cast<int64_t>(__shfl_sync(0xffffffffu, static_cast<double>(lane), operand, width));
  row[1] = __shfl_up_sync(0xffffffffu, lane, operand, width);
  row[2] = __shfl_down_sync(0xffffffffu, static_cast<long long>(lane), operand, width);
  row[3] = __shfl_xor_sync(0xffffffffu, static_cast<unsigned>(lane), operand, width);
  // Halves of a warp apart from each other.
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  for (int i = 0; i < (lane < 16 ? 3 : 5); ++i) {
    if (__shfl_xor_sync(half, lane * 100 + i, 1) != (lane ^ 1) * 100 + i) row[0] = -1;
  }
  __syncwarp(half);
}

extern "C" int run_shuffles(int width, int64_t operand, void* y) {
  return fusegen::launch(shuffles, 2, dim3(32, 2), 0, nullptr, width, operand, static_cast<int64_t*>(y));
}
"""


@pytest.fixture(scope="module")
def reduction(build):
    return build(REDUCTION, "reduction", checked=False)


def row_sums(library, name, dtype=torch.float32, rows=3, columns=500, threads=128, seed=0):
    x = torch.arange(rows * columns, dtype=dtype).reshape(rows, columns) % 7
    y = Buffer.poisoned([rows], dtype)
    function = "row_sums_double" if dtype == torch.float64 else "row_sums_float"
    arguments = Buffer.from_tensor(x), y, rows, columns, threads
    library.call(function, MODES.index(name), *arguments, seed=seed)
    return y.tensor(), 2 * x.sum(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [32, 128, 1024])
def test_reduction(reduction, dtype, threads):
    for seed in SEEDS:
        torch.testing.assert_close(*row_sums(reduction, "correct", dtype, threads=threads, seed=seed))


@pytest.mark.parametrize("name", ["no_first_barrier", "no_second_barrier", "shuffle_down", "unwritten"])
@pytest.mark.parametrize("rows", [1, 3])
def test_wrong_reduction_gives_wrong_sums(reduction, name, rows):
    results = [row_sums(reduction, name, rows=rows, seed=seed) for seed in SEEDS]
    wrong = [not torch.allclose(y, expected) for y, expected in results]
    assert sum(wrong) >= 2
    if name in ("shuffle_down", "unwritten"):
        assert all(wrong)
    if name == "unwritten":
        assert all(y.isnan().all() for y, _ in results)


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "divergent_barrier",
            r"row_sums.*is at the barrier kernels.cu:\d+ while thread .* waits at the barrier kernels",
        ),
        ("partial_mask", r"waits at kernels.cu:\d+ with mask 0xffffffff for lane|in another shuffle at"),
        ("other_call", r"is at kernels.cu:\d+ while lane \d+ is in another shuffle at kernels.cu:\d+"),
        ("exited_lane", r"at kernels.cu:\d+,? .*(which has exited|no such lane is alive)"),
        ("other_mask", r"waits at kernels.cu:\d+ with mask 0xffffffff for lane|in another shuffle at"),
        (
            "shared_overflow",
            r"block .*thread \(40, 0, 0\): writes byte 528 of the block's 16 bytes of shared memory \[ker",
        ),
        ("shared_underflow", r"a thread wrote byte -4 of the block's 16 bytes"),
    ],
)
def test_faulty_reduction_is_reported(reduction, name, message):
    for seed in SEEDS:
        with pytest.raises(EmulationError, match=message):
            row_sums(reduction, name, seed=seed)
    torch.testing.assert_close(*row_sums(reduction, "correct"))


def test_shared_memory_slack_has_a_canary(reduction):
    with pytest.raises(EmulationError, match=r"a thread wrote byte 8 of the block's 8 bytes"):
        row_sums(reduction, "shared_canary", threads=64)


def test_exited_threads_count_as_arrived(reduction):
    for seed in SEEDS:
        assert row_sums(reduction, "barrier_after_exit", seed=seed)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("operand", [0, 1, 3, 8, 21])
def test_shuffles(build, width, operand):
    library = build(SHUFFLES, "shuffles")
    expected = []
    for lane in range(32):
        first, last = lane // width * width, lane // width * width + width - 1
        up, down, xor = lane - operand, lane + operand, lane ^ operand
        expected.append(
            [
                first + operand % width,
                up if up >= first else lane,
                down if down <= last else lane,
                xor if xor <= last else lane,
            ]
        )
    for seed in SEEDS:
        y = Buffer.poisoned([4, 32, 4], torch.int64)
        library.call("run_shuffles", width, operand, y, seed=seed)
        assert y.tensor().tolist() == [expected] * 4


UNSET = """
__global__ void unset(int from, float* y) {
  float values[32];
  for (int i = from; i < 32; ++i) values[i] = 1;
  y[threadIdx.x] = values[threadIdx.x];
}

extern "C" int run_unset(int from, void* y) {
  return fusegen::launch(unset, 1, dim3(32), 0, nullptr, from, static_cast<float*>(y));
}
"""


@pytest.mark.parametrize("optimised", [False, True])
def test_a_variable_without_a_value_is_huge(build, optimised):
    library = build(UNSET, f"unset_{optimised}", optimised=optimised)
    for seed in SEEDS:
        y = Buffer.poisoned([32], torch.float32)
        library.call("run_unset", 5, y, seed=seed)
        assert (y.tensor()[:5].abs() > 1e30).all() and (y.tensor()[5:] == 1).all()
