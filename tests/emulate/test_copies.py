"""Copies to shared memory that a thread waits for: made where it does and not before, and each kind of mistake seen."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer, EmulationError

SEEDS = range(6)
THREADS = 64

BATCHES = """
#include <cuda_pipeline.h>

// Each thread copies its elements in `count` batches, and one more that it does not end. It shows what it finds when
// it has waited for all but the last `left`, and what it finds at the end.
template <int kFloats>
__global__ void batches(const float* x, float* y, int count, int left) {
  const int size = (count + 1) * kFloats;
  const int64_t first = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * size;
  float* slots = fusegen::shared_memory<float>() + threadIdx.x * size;
  for (int i = 0; i < size; ++i) slots[i] = -1;
  for (int i = 0; i <= count; ++i) {
    __pipeline_memcpy_async(slots + i * kFloats, x + first + i * kFloats, kFloats * sizeof(float));
    if (i < count) __pipeline_commit();
  }
  __pipeline_wait_prior(left);
  for (int i = 0; i < size; ++i) y[2 * first + i] = slots[i];
  __pipeline_commit();
  __pipeline_wait_prior(0);
  for (int i = 0; i < size; ++i) y[2 * first + size + i] = slots[i];
}

extern "C" int run_batches(int floats, void* x, void* y, int64_t blocks, int64_t threads, int64_t count, int64_t left) {
  const auto kernel = floats == 1 ? batches<1> : floats == 2 ? batches<2> : batches<4>;
  return fusegen::launch(kernel, blocks, threads, threads * (count + 1) * floats * sizeof(float), nullptr,
                         static_cast<const float*>(x), static_cast<float*>(y), int(count), int(left));
}
"""

# A thread's copy of four elements, which another thread may read, and what can be wrong about it.
MISTAKES = """
#include <cuda_pipeline.h>

enum Mode {
  correct, read_by_another, no_wait, waits_too_little, waits_before_it_ends, never_waits, two_bytes, twelve_bytes,
  no_bytes, to_between, from_between, to_buffer, to_stack, to_another_block, past_the_end, before_the_start,
  from_past_the_end, from_before_the_start, from_unwritten, from_shared, from_stack, to_one_place,
  without_barrier, exits_past_the_end, exits_from_past_the_end,
};

__global__ void copies(int mode, const float* x, float* y, float* unwritten) {
  float* tile = fusegen::shared_memory<float>();
  const int thread = threadIdx.x;
  const bool one = thread == 40;  // that makes the mistake
  float own[4] = {1, 2, 3, 4};
  float* to = tile + 4 * thread;
  const float* from = x + 4 * thread;
  std::size_t bytes = 16;
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  if (one && mode == two_bytes) bytes = 2;
  if (one && mode == twelve_bytes) bytes = 12;
  if (one && mode == no_bytes) bytes = 0;
  if (one && mode == to_between) to += 2;
  if (one && mode == from_between) from += 2;
  if (one && mode == to_buffer) to = y;
  if (one && mode == to_stack) to = own;
  if (one && mode == to_another_block) to = static_cast<float*>(__cluster_map_shared_rank(to, blockIdx.z ^ 1));
  if (one && (mode == past_the_end || mode == exits_past_the_end)) to = tile + 4 * blockDim.x;
  if (one && mode == before_the_start) to = tile - 4;
  if (one && (mode == from_past_the_end || mode == exits_from_past_the_end)) from = x + 4 * blockDim.x;
  if (one && mode == from_before_the_start) from = x - 4;
  if (one && mode == from_unwritten) from = unwritten;
  if (one && mode == from_shared) from = tile;
  if (one && mode == from_stack) from = own;
  if (one && mode == to_one_place) to -= 4;
  __pipeline_memcpy_async(to, from, bytes);
  if (one && (mode == exits_past_the_end || mode == exits_from_past_the_end)) return;
  if (mode == waits_before_it_ends) __pipeline_wait_prior(0);
  __pipeline_commit();
  if (mode != no_wait && mode != never_waits && mode != waits_before_it_ends) {
    __pipeline_wait_prior(mode == waits_too_little && one ? 1 : 0);
  }
  if (mode == never_waits) return;
  if (mode == read_by_another) __syncthreads();
  const bool crosses = mode == read_by_another || mode == without_barrier;
  const float* read = tile + 4 * (crosses ? thread ^ 1 : thread);
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += read[i];
  y[(blockIdx.z * blockDim.x + thread) ^ crosses] = sum;
  if (mode == no_wait) __pipeline_wait_prior(0);
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}

extern "C" int run_copies(int mode, void* x, void* y, void* unwritten, int64_t threads) {
  return fusegen::launch(copies, dim3(1, 1, 2), dim3(threads), threads * 4 * sizeof(float), nullptr, mode,
                         static_cast<const float*>(x), static_cast<float*>(y), static_cast<float*>(unwritten));
}
"""
MODES = [word.strip() for word in MISTAKES.split("enum Mode {")[1].split("}")[0].split(",") if word.strip()]


@pytest.fixture(scope="module")
def batches(build):
    return build(BATCHES, "batches")


@pytest.fixture(scope="module")
def mistakes(build):
    return build(MISTAKES, "mistakes")


def copied(library, mode, seed=0):
    """The sums of what each thread has copied, and what they should be. Two blocks copy the same."""
    x = torch.arange(4.0 * THREADS).reshape(THREADS, 4)
    y, unwritten = Buffer.poisoned([2, THREADS], torch.float32), Buffer.poisoned([4], torch.float32)
    arguments = Buffer.from_tensor(x, readonly=True), y, unwritten, THREADS
    library.call("run_copies", MODES.index(mode), *arguments, seed=seed)
    return y.tensor(), x.sum(1).expand(2, -1)


@pytest.mark.parametrize("floats", [1, 2, 4])
@pytest.mark.parametrize("count, left", [(0, 0), (1, 0), (1, 1), (4, 0), (4, 1), (4, 3), (4, 4), (4, 7)])
def test_a_wait_makes_the_batches_before_the_last_ones(batches, floats, count, left):
    """All of them, none of the others, and none that has not ended."""
    blocks, threads = 2, 32
    x = torch.arange(float(blocks * threads * (count + 1) * floats)).reshape(-1, count + 1, floats)
    waited = x.clone()
    waited[:, max(count - left, 0) :] = -1
    for seed in SEEDS:
        y = Buffer.poisoned([blocks * threads, 2, count + 1, floats], torch.float32)
        arguments = Buffer.from_tensor(x, readonly=True), y, blocks, threads, count, left
        batches.call("run_batches", floats, *arguments, seed=seed)
        assert torch.equal(y.tensor()[:, 0], waited)
        assert torch.equal(y.tensor()[:, 1], x)


@pytest.mark.parametrize("mode", ["correct", "read_by_another"])
def test_copies_that_are_waited_for(mistakes, mode):
    for seed in SEEDS:
        assert torch.equal(*copied(mistakes, mode, seed))


SHARED = r"byte -?\d+ of the block's 1024 bytes of shared memory"
AT = r" \[kernels.cu:\d+\]"


@pytest.mark.parametrize(
    "mode, message",
    [
        ("no_wait", rf"reads {SHARED}, which nothing has written{AT}"),
        ("waits_too_little", rf"reads {SHARED}, which nothing has written{AT}"),
        ("waits_before_it_ends", rf"reads {SHARED}, which nothing has written{AT}"),
        ("never_waits", "exits with a copy to shared memory that it has not waited for"),
        ("two_bytes", rf"copies 2 bytes at a time to shared memory{AT}"),
        ("twelve_bytes", rf"copies 12 bytes at a time to shared memory{AT}"),
        ("no_bytes", rf"copies 0 bytes at a time to shared memory{AT}"),
        ("to_between", rf"copies 16 bytes to or from an address between them{AT}"),
        ("from_between", rf"copies 16 bytes to or from an address between them{AT}"),
        ("to_buffer", rf"copies to 0x[0-9a-f]+, which is not in its block's shared memory{AT}"),
        ("to_stack", rf"copies to 0x[0-9a-f]+, which is not in its block's shared memory{AT}"),
        ("to_another_block", rf"copies to 0x[0-9a-f]+, which is not in its block's shared memory{AT}"),
        ("from_shared", rf"copies from 0x[0-9a-f]+, which is not global memory{AT}"),
        ("from_stack", rf"copies from 0x[0-9a-f]+, which is not global memory{AT}"),
        ("past_the_end", rf"writes byte 1024 of the block's 1024 bytes of shared memory{AT}"),
        ("before_the_start", rf"writes byte -16 of the block's 1024 bytes of shared memory{AT}"),
        ("from_past_the_end", rf"reads .*argument 1.*\(read-only\), 0 bytes past its end{AT}"),
        ("from_before_the_start", rf"reads .*argument 1.*\(read-only\), 16 bytes before its start{AT}"),
        ("from_unwritten", rf"reads .*, which nothing has written, argument 3, .* at element 0{AT}"),
        # Even where nobody waits for it.
        ("exits_past_the_end", rf"writes byte 1024 of the block's 1024 bytes of shared memory{AT}"),
        ("exits_from_past_the_end", rf"reads .*, 0 bytes past its end{AT}"),
    ],
)
def test_mistaken_copy_is_reported(mistakes, mode, message):
    for seed in SEEDS:
        with pytest.raises(EmulationError, match=rf"copies\(.*block \(0, 0, \d\), thread \(.*\): ({message})"):
            copied(mistakes, mode, seed)
    assert torch.equal(*copied(mistakes, "correct"))


@pytest.mark.parametrize("mode", ["to_one_place", "without_barrier"])
def test_races_of_copies_are_seen_in_any_order(mistakes, mode):
    """Two threads copy to one place, or one reads what another one has copied. A reader may come too early as well."""
    found = rf"{SHARED}, which (thread \(\d+, 0, 0\) has (written|read) since the last barrier|nothing has written)"
    for seed in SEEDS:
        with pytest.raises(EmulationError, match=rf"(reads|writes) {found}{AT}"):
            copied(mistakes, mode, seed)
