"""Blocks and threads run in an order that the seed sets, with warps near each other or far apart.

That is what shows a race where accesses are not looked at, so these kernels, races all of them, are compiled without.
"""

import pytest
import torch

from fusegen.emulate import Buffer

SOURCE = """
// Threads and blocks take a number when they come by; the emulator runs one at a time.
__global__ void order(int* next, int* threads, int* blocks) {
  if (threadIdx.x == 0) blocks[next[0]++] = blockIdx.x;
  if (blockIdx.x == 0) threads[next[1]++] = threadIdx.x;
  __syncthreads();
  if (blockIdx.x == 0) threads[next[1]++] = threadIdx.x;
}

extern "C" int run_order(int, void* next, void* threads, void* blocks) {
  return fusegen::launch(order, 10, 64, 0, nullptr, static_cast<int*>(next), static_cast<int*>(threads),
                         static_cast<int*>(blocks));
}

// The first warp overwrites what the others read, `shuffles` later; nothing but luck keeps them apart.
__global__ void race(int shuffles, int* y) {
  int* shared = fusegen::shared_memory<int>();
  if (threadIdx.x == 0) *shared = 1;
  __syncthreads();
  y[threadIdx.x] = *shared;
  for (int i = 0; i < shuffles; ++i) __shfl_xor_sync(0xffffffffu, i, 1);
  if (threadIdx.x == 0) *shared = 2;
}

extern "C" int run_race(int shuffles, void* y) {
  return fusegen::launch(race, 1, 256, sizeof(int), nullptr, shuffles, static_cast<int*>(y));
}
"""


def order(library, seed):
    following = Buffer.from_tensor(torch.zeros(2, dtype=torch.int32))
    threads, blocks = Buffer.poisoned([2, 64], torch.int32), Buffer.poisoned([10], torch.int32)
    library.call("run_order", 0, following, threads, blocks, seed=seed)
    before, after = threads.tensor().tolist()
    return before, after, blocks.tensor().tolist()


def test_order_follows_the_seed(build):
    library = build(SOURCE, "order", checked=False)
    orders = [order(library, seed) for seed in range(6)]
    assert orders == [order(library, seed) for seed in range(6)]
    for before, after, blocks in orders:
        assert sorted(before) == sorted(after) == list(range(64))
        assert sorted(blocks) == list(range(10))
        assert before != after
    for part in range(3):
        assert len({tuple(each[part]) for each in orders}) == 6


def test_neither_of_two_threads_is_favoured(build):
    library = build(SOURCE, "order", checked=False)
    orders = [order(library, seed)[0] for seed in range(200)]
    for one, other in ((0, 1), (0, 31), (5, 40), (31, 32)):  # of one warp, of two
        assert 70 < sum(each.index(one) < each.index(other) for each in orders) < 130


@pytest.mark.parametrize("shuffles", [0, 5, 100])
def test_a_warp_may_get_far_ahead(build, shuffles):
    library = build(SOURCE, "order", checked=False)
    seen = []
    for seed in range(6):
        y = Buffer.poisoned([256], torch.int32)
        library.call("run_race", shuffles, y, seed=seed)
        seen.append((y.tensor() == 2).any().item())
    assert any(seen)
