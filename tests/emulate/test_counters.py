"""Blocks of one launch that wait for counters which blocks before them add to, and each mistake in that."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer, EmulationError

SEEDS = range(6)
THREADS = 64

# Each block adds its number to what the block before it left, element by element.
CHAIN = """
enum Mode {
  correct, no_wait, no_barrier_behind_the_wait, no_count, no_barrier_before_the_count, waits_for_less,
  waits_for_itself, any_order, nothing_is_cleared, one_counter,
};

__device__ __forceinline__ void wait(int mode, const unsigned* counter, unsigned least) {
  if (threadIdx.x == 0 && mode != no_wait) fusegen::emulate::acquire_from(counter, least);
  if (mode != no_barrier_behind_the_wait) __syncthreads();
}

__device__ __forceinline__ void count(int mode, unsigned* counter) {
  if (mode != no_barrier_before_the_count) __syncthreads();
  if (threadIdx.x == 0 && mode != no_count) fusegen::emulate::add_and_release(counter);
}

// Counters of each block; one_counter: of all of them.
__global__ void chain(int mode, unsigned* counters, float* y) {
  const int block = blockIdx.x, n = blockDim.x;
  if (block > 0) {
    const int least = mode == one_counter ? block : 1;
    wait(mode, counters + (mode == one_counter ? 0 : mode == waits_for_itself ? block : block - 1),
         mode == waits_for_less ? 0 : least);
  }
  // Of another thread of the block before.
  const float before = block > 0 ? y[(block - 1) * n + (threadIdx.x + 1) % n] : 0.0f;
  y[block * n + threadIdx.x] = before + block;
  count(mode, counters + (mode == one_counter ? 0 : block));
}

extern "C" int run_chain(int mode, void* counters, void* y, int64_t blocks) {
  auto* cleared = static_cast<unsigned*>(counters);
  if (mode != nothing_is_cleared) cudaMemsetAsync(cleared, 0, blocks * sizeof(unsigned), nullptr);
  if (mode == any_order) {
    return fusegen::launch(chain, blocks, 64, 0, nullptr, mode, cleared, static_cast<float*>(y));
  }
  return fusegen::launch_in_order(chain, blocks, 64, 0, nullptr, mode, cleared, static_cast<float*>(y));
}

// Two blocks write to one word each, and tell; the third has waited for either, and reads both.
__global__ void either(unsigned* counted, const unsigned* awaited, float* y) {
  if (blockIdx.x < 2) {
    y[blockIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) fusegen::emulate::add_and_release(counted);
    return;
  }
  if (threadIdx.x == 0) fusegen::emulate::acquire_from(awaited, 1);
  __syncthreads();
  y[2] = y[0] + y[1];
}

// Each block but the last reads a word, and tells. The last one reads it, waits for `least` of them and writes it.
__global__ void overwrites(unsigned* counted, int64_t least, float* x, float* y) {
  const int last = gridDim.x - 1, block = blockIdx.x;
  y[block * blockDim.x + threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (block < last) {
    if (threadIdx.x == 0) fusegen::emulate::add_and_release(counted);
    return;
  }
  if (threadIdx.x == 0 && least > 0) fusegen::emulate::acquire_from(counted, unsigned(least));
  __syncthreads();
  x[threadIdx.x] = 2;
}

extern "C" int run_overwrites(int blocks, void* counter, void* x, void* y, int64_t least) {
  auto* cleared = static_cast<unsigned*>(counter);
  cudaMemsetAsync(cleared, 0, sizeof(unsigned), nullptr);
  return fusegen::launch_in_order(overwrites, blocks, 64, 0, nullptr, cleared, least, static_cast<float*>(x),
                                  static_cast<float*>(y));
}

// Who adds to the counter, or waits for it, may do so `beyond` it.
extern "C" int run_either(int waits, void* counter, void* y, int64_t beyond) {
  auto* cleared = static_cast<unsigned*>(counter);
  cudaMemsetAsync(cleared, 0, sizeof(unsigned), nullptr);
  return fusegen::launch_in_order(either, 3, 1, 0, nullptr, cleared + (waits ? 0 : beyond),
                                  cleared + (waits ? beyond : 0), static_cast<float*>(y));
}
"""

MODES = [word.strip() for word in CHAIN.split("enum Mode {")[1].split("}")[0].split(",") if word.strip()]
ANOTHER_BLOCK = "reads global memory .*, which another block has written"


@pytest.fixture(scope="module")
def library(build):
    return build(CHAIN, "counters")


def run(library, mode: str, blocks: int = 5, seed: int = 0) -> torch.Tensor:
    counters, y = Buffer.poisoned([blocks], torch.float32), Buffer.poisoned([blocks * THREADS], torch.float32)
    library.call("run_chain", MODES.index(mode), counters, y, blocks, seed=seed)
    return y.tensor().reshape(blocks, THREADS)


@pytest.mark.parametrize("mode", ["correct", "one_counter"])
def test_what_was_released_may_be_read(library, mode: str) -> None:
    for seed in SEEDS:
        expected = torch.arange(5.0).cumsum(0)[:, None].expand(5, THREADS)
        assert torch.equal(run(library, mode, seed=seed), expected)


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        ("no_wait", ANOTHER_BLOCK),
        ("no_barrier_behind_the_wait", ANOTHER_BLOCK),
        ("no_barrier_before_the_count", ANOTHER_BLOCK),
        ("waits_for_less", ANOTHER_BLOCK),
        ("no_count", "waits until a counter is 1, which no block before this one brings beyond 0"),
        ("waits_for_itself", "waits until a counter is 1, which no block before this one brings beyond 0"),
        ("nothing_is_cleared", "adds to a counter that nothing has set"),
    ],
)
def test_each_mistake_is_seen(library, mode: str, error: str) -> None:
    for seed in SEEDS:
        with pytest.raises(EmulationError, match=error):
            run(library, mode, seed=seed)


def test_blocks_that_start_in_any_order_may_wait_for_ever(library) -> None:
    with pytest.raises(EmulationError, match="no block before this one"):
        for seed in SEEDS:
            run(library, "any_order", seed=seed)


def test_who_waits_for_some_of_those_that_count_knows_of_none(library) -> None:
    with pytest.raises(EmulationError, match=ANOTHER_BLOCK):
        for seed in SEEDS:
            counter, y = Buffer.poisoned([1], torch.float32), Buffer.poisoned([3], torch.float32)
            library.call("run_either", 0, counter, y, 0, seed=seed)


def overwrite(library, blocks: int, least: int, seed: int) -> torch.Tensor:
    counter, x = Buffer.poisoned([1], torch.float32), Buffer.from_tensor(torch.ones(THREADS))
    y = Buffer.poisoned([blocks * THREADS], torch.float32)
    library.call("run_overwrites", blocks, counter, x, y, least, seed=seed)
    assert torch.equal(y.tensor(), torch.ones(blocks * THREADS))
    return x.tensor()


def test_what_others_have_read_may_be_overwritten_once_they_have_told(library) -> None:
    """Also by a block that has read it, too, before it waited."""
    for seed in SEEDS:
        assert torch.equal(overwrite(library, 2, 1, seed), torch.full([THREADS], 2.0))


# Of several that have read it, one is remembered: who may have missed another has.
@pytest.mark.parametrize(("blocks", "least"), [(2, 0), (3, 0), (3, 1), (3, 2)])
def test_what_others_read_is_not_overwritten(library, blocks: int, least: int) -> None:
    for seed in SEEDS:
        with pytest.raises(EmulationError, match="writes global memory .*, which another block has read"):
            overwrite(library, blocks, least, seed)


@pytest.mark.parametrize("beyond", [-1, 1])
@pytest.mark.parametrize(("waits", "verb"), [(0, "writes"), (1, "reads")])
def test_counters_have_bounds(library, waits: int, verb: str, beyond: int) -> None:
    counter, y = Buffer.poisoned([1], torch.float32), Buffer.poisoned([3], torch.float32)
    with pytest.raises(EmulationError, match=rf"{verb} global memory .*, argument 1, Buffer\(float32, \[1\]\)"):
        library.call("run_either", waits, counter, y, beyond)
