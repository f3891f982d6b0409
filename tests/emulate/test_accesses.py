"""Accesses are looked at before they happen: races, strays and reads of what nothing has written, in any order."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer, EmulationError
from tests.emulate import test_emulator as blocks
from tests.emulate import test_global_memory as elements

SEEDS = range(6)

# Who writes a word, who reads it, and what lies in between; the numbers are lanes of the first two warps.
RACES = """
enum Between { nothing, block_barrier, warp_barrier, half_warp_barrier, shuffle };

__device__ __forceinline__ void pass(int between) {
  if (between == block_barrier) __syncthreads();
  if (between == warp_barrier) __syncwarp();
  if (between == half_warp_barrier) __syncwarp(threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u);
  if (between == shuffle) __shfl_sync(0xffffffffu, 0, 0);
}

// One thread writes, two read, a fourth writes again.
__global__ void accesses(int before, int after, float* memory, float* result, int writer, int one, int other,
                         int last) {
  float* word = memory ? memory : fusegen::shared_memory<float>();
  const int thread = threadIdx.x;
  if (thread == writer) *word = 1;
  pass(before);
  if (thread == one) result[0] = *word;
  if (thread == other) result[1] = *word;
  pass(after);
  if (thread == last) *word = 2;
}

extern "C" int run_accesses(int before, void* memory, void* result, int64_t after, int64_t writer, int64_t one,
                            int64_t other, int64_t last) {
  return fusegen::launch(accesses, 1, 64, sizeof(float), nullptr, before, int(after), static_cast<float*>(memory),
                         static_cast<float*>(result), int(writer), int(one), int(other), int(last));
}

// Neighbouring elements of two bytes have a thread each; then each reads its neighbour's.
__global__ void neighbours(float* y) {
  auto* shared = fusegen::shared_memory<unsigned short>();
  shared[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = shared[threadIdx.x ^ 1];
}

extern "C" int run_neighbours(int, void* y) {
  return fusegen::launch(neighbours, 1, 64, 128, nullptr, static_cast<float*>(y));
}

enum Across { own, same_write, other_read, read_by_all_then_written };

// Blocks of one launch, whom nothing orders.
__global__ void across(int how, float* memory, float* y) {
  const int block = blockIdx.x;
  if (how == own) memory[block] = y[block] = 1;
  if (how == same_write) memory[0] = 1;
  if (how == other_read) memory[block] = 1, y[block] = memory[block ^ 1];
  if (how == read_by_all_then_written) {
    y[block] = memory[2];
    if (block == 0) memory[2] = 3;
  }
}

// A second launch comes after the first.
extern "C" int run_across(int how, void* memory, void* y, int64_t launches) {
  int error = 0;
  for (int64_t i = 0; i < launches; ++i) {
    const int now = launches > 1 && i == 0 ? int(own) : how;
    error |= fusegen::launch(across, launches > 1 ? (i == 0 ? 2 : 1) : 2, 1, 0, nullptr, now,
                             static_cast<float*>(memory), static_cast<float*>(y));
  }
  return error;
}

struct Large { float element[8]; };

__global__ void copies(const Large* x, Large* y) { y[threadIdx.x] = x[threadIdx.x]; }

extern "C" int run_copies(int, void* x, void* y, int64_t threads) {
  return fusegen::launch(copies, 1, dim3(threads), 0, nullptr, static_cast<Large*>(x), static_cast<Large*>(y));
}
"""
BETWEEN = [word.strip() for word in RACES.split("enum Between {")[1].split("}")[0].split(",")]
ACROSS = [word.strip() for word in RACES.split("enum Across {")[1].split("}")[0].split(",")]


@pytest.fixture(scope="module")
def races(build):
    return build(RACES, "races")


def accesses(library, between, threads, seed, shared, after=None):
    result = Buffer.from_tensor(torch.zeros(2))
    memory = None if shared else Buffer.poisoned([1], torch.float32)
    first, second = BETWEEN.index(between), BETWEEN.index(after or between)
    library.call("run_accesses", first, memory, result, second, *threads, seed=seed)
    return result.tensor().tolist()


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "global"])
@pytest.mark.parametrize(
    "between, threads",
    [
        ("nothing", (7, 7, 7, 7)),
        ("block_barrier", (0, 1, 33, 2)),
        ("block_barrier", (40, 1, 2, 3)),
        ("warp_barrier", (0, 1, 2, 3)),
        ("warp_barrier", (35, 40, 41, 35)),
        ("half_warp_barrier", (0, 1, 2, 3)),
    ],
)
def test_barriers_order_accesses(races, between, threads, shared):
    for seed in SEEDS:
        assert accesses(races, between, threads, seed, shared) == [1, 1]


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "global"])
@pytest.mark.parametrize(
    "between, threads",
    [
        ("nothing", (0, 0, 0, 1)),  # two writers
        ("nothing", (0, 0, 0, 32)),
        ("nothing", (0, 1, 1, 1)),  # a writer and a reader
        ("warp_barrier", (0, 33, 33, 33)),  # which orders lanes, not warps
        ("warp_barrier", (0, 1, 1, 33)),
        ("warp_barrier", (0, 0, 0, 33)),
        ("shuffle", (0, 1, 1, 1)),  # which moves a register and orders no memory
    ],
)
def test_races_are_seen_in_any_order(races, between, threads, shared):
    for seed in SEEDS:
        message = r"run_accesses: accesses\(.*block \(0, 0, 0\), thread \(\d+, 0, 0\): (reads|writes) .*which "
        with pytest.raises(EmulationError, match=message + r".*\[kernels.cu:\d+\]") as raised:
            accesses(races, between, threads, seed, shared)
        # Whoever came first. A reader that came before the writer may also be told that there is nothing to read.
        assert any(
            text in str(raised.value)
            for text in ("written since the last barrier", "read since the last barrier", "which nothing has written")
        )


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "global"])
@pytest.mark.parametrize("readers", [(1, 2), (1, 33), (5, 5)])
@pytest.mark.parametrize("last, after", [(40, "nothing"), (40, "shuffle"), (45, "warp_barrier"), (6, "nothing")])
def test_a_write_that_waits_for_no_reader(races, readers, last, after, shared):
    """The first write is everybody's past; whoever comes second of a reader and the last writer is caught."""
    for seed in SEEDS:
        with pytest.raises(EmulationError, match="which (thread .*|other threads) ha(s|ve) (read|written) since"):
            accesses(races, "block_barrier", (0, *readers, last), seed, shared, after)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "global"])
@pytest.mark.parametrize("readers, after", [((1, 2), "nothing"), ((1, 33), "nothing"), ((1, 33), "warp_barrier")])
def test_a_reader_writes_that_waits_for_no_other_reader(races, readers, after, shared):
    for seed in SEEDS:
        with pytest.raises(EmulationError, match="which (thread .*|other threads) ha(s|ve) (read|written) since"):
            accesses(races, "block_barrier", (0, *readers, readers[1]), seed, shared, after)


def test_a_write_that_waits_for_the_readers_of_its_warp(races):
    for seed in SEEDS:
        assert accesses(races, "block_barrier", (40, 1, 2, 3), seed, True, "warp_barrier") == [1, 1]
        with pytest.raises(EmulationError, match="other threads have read|has written"):
            accesses(races, "block_barrier", (40, 1, 33, 3), seed, True, "warp_barrier")


def test_elements_of_two_bytes_are_apart(races):
    for seed in SEEDS:
        y = Buffer.poisoned([64], torch.float32)
        races.call("run_neighbours", 0, y, seed=seed)
        assert y.tensor().tolist() == [i ^ 1 for i in range(64)]


@pytest.mark.parametrize("how", ["same_write", "other_read", "read_by_all_then_written"])
def test_blocks_of_a_launch_are_not_ordered(races, how):
    for seed in SEEDS:
        memory, y = Buffer.from_tensor(torch.zeros(3)), Buffer.poisoned([2], torch.float32)
        with pytest.raises(EmulationError, match=r"which another block has (written|read), argument 1, Buffer"):
            races.call("run_across", ACROSS.index(how), memory, y, 1, seed=seed)


@pytest.mark.parametrize("how", ACROSS)
def test_launches_are_ordered(races, how):
    for seed in SEEDS:
        memory, y = Buffer.from_tensor(torch.zeros(3)), Buffer.poisoned([2], torch.float32)
        races.call("run_across", ACROSS.index(how), memory, y, 2, seed=seed)
        assert y.tensor()[0] == (0 if how.startswith("read") else 1)


@pytest.mark.parametrize("floats", [24, 20])
def test_copies_of_structures_are_accesses_too(races, floats):
    x = Buffer.from_tensor(torch.arange(float(floats)), readonly=True)
    y = Buffer.poisoned([24], torch.float32)
    if floats == 24:
        races.call("run_copies", 0, x, y, 3)
        assert torch.equal(y.tensor(), x.tensor())
    else:
        with pytest.raises(EmulationError, match=r"thread \(2, 0, 0\): reads .*argument 1.*, 0 bytes past its end"):
            races.call("run_copies", 0, x, y, 3)


@pytest.fixture(scope="module")
def reduction(build):
    return build(blocks.REDUCTION, "reduction")


@pytest.fixture(scope="module")
def elementwise(build):
    return build(elements.ELEMENTWISE, "elementwise")


@pytest.mark.parametrize(
    "name, message",
    [
        ("no_first_barrier", r"of shared memory, which (nothing has|thread .* has|other threads have) (written|read)"),
        ("no_second_barrier", r"of shared memory, which (thread .* has|other threads have) (written|read) since"),
        ("unwritten", r"reads byte 4 of the block's 16 bytes of shared memory, which nothing has written"),
        ("shared_overflow", r"thread \(40, 0, 0\): writes byte 528 of the block's 16 bytes of shared memory"),
        ("shared_canary", r"thread \(40, 0, 0\): writes byte 16 of the block's 16 bytes of shared memory"),
        ("shared_underflow", r"thread \(40, 0, 0\): writes byte -4 of the block's 16 bytes of shared memory"),
    ],
)
def test_faulty_reduction_is_reported_every_time(reduction, name, message):
    for seed in SEEDS:
        with pytest.raises(EmulationError, match=message + r".*\[kernels.cu:\d+\]"):
            blocks.row_sums(reduction, name, seed=seed)
    for threads in (32, 128, 1024):
        torch.testing.assert_close(*blocks.row_sums(reduction, "correct", threads=threads))


@pytest.mark.parametrize(
    "name, n, message",
    [
        ("reads_past_end", 100, r"reads .*argument 1.*\(read-only\), 0 bytes past its end"),
        ("reads_past_end", 101, r"reads .*argument 1.*\(read-only\), 0 bytes past its end"),  # and within its page
        ("writes_past_end", 100, r"writes .*argument 2.*, 0 bytes past its end"),
        ("writes_past_end", 101, r"writes .*argument 2.*, 0 bytes past its end"),
        ("writes_before_start", 100, r"writes .*argument 2.*, 4 bytes before its start"),
        ("writes_before_start", 1024, r"writes .*argument 2.*, 4 bytes before its start"),
        ("writes_input", 100, r"writes .*argument 1, Buffer\(float32, \[100\]\) \(read-only\), at element 0"),
    ],
)
def test_stray_global_access(elementwise, name, n, message):
    with pytest.raises(EmulationError, match=message + r" \[kernels.cu:\d+\]"):
        elements.twice(elementwise, name, n)
    torch.testing.assert_close(*elements.twice(elementwise, "correct", n))


def test_reading_an_output_that_nothing_has_written(elementwise):
    x, y = Buffer.poisoned([100], torch.float32), Buffer.poisoned([100], torch.float32)
    with pytest.raises(EmulationError, match=r"reads .* which nothing has written, argument 1, .* at element \d+ \["):
        elementwise.call("twice_forward", 0, x, y, 100, 1)
    # A call before may have written it.
    elementwise.call("twice_forward", 0, Buffer.from_tensor(torch.ones(100)), x, 100, 1)
    elementwise.call("twice_forward", 0, x, y, 100, 1)
    assert (y.tensor() == 4).all()
