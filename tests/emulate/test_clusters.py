"""What the blocks of a cluster do together: right where it is right, and each kind of mistake is seen in any order."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer, EmulationError

SEEDS = range(6)
THREADS = 64

# Two turns of each thread's sum over the blocks of its cluster, which show each other their values.
CLUSTERS = """
enum Mode {
  correct, halves, straight_on, exited_block, arrived_and_exited, no_first_barrier, no_second_barrier,
  no_last_barrier, early_arrival, no_such_rank, beyond_own_memory, beyond_peers_memory, write_to_peer,
  write_before_begin, wait_first, arrive_twice, block_barrier, shuffle, through_global,
  through_global_without_barrier,
};

__device__ __forceinline__ void cluster_barrier() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}

__device__ __forceinline__ float* of_peer(float* own, unsigned rank) {
  return static_cast<float*>(__cluster_map_shared_rank(own, rank));
}

__global__ void sums(int mode, const float* x, float* y, int size) {
  float* shown = fusegen::shared_memory<float>();
  const int thread = threadIdx.x;
  const int rank = blockIdx.z;
  const int64_t block = (int64_t(blockIdx.x) * gridDim.y + blockIdx.y) * size + rank;
  const int64_t at = block * blockDim.x + thread;
  int peers = size;
  if (mode == exited_block || mode == arrived_and_exited) {
    if (rank == --peers) {
      if (mode == arrived_and_exited) __cluster_barrier_arrive();
      return;
    }
  }
  float value = x[at];
  if (mode == wait_first) __cluster_barrier_wait();
  if (mode == arrive_twice) __cluster_barrier_arrive();
  if (mode == block_barrier && rank == 1 && thread == 40) {
    __syncthreads();
  }
  if (mode == shuffle && rank == 1 && thread == 40) __shfl_sync(0xffffffffu, value, 0);
  if (mode == beyond_own_memory) of_peer(shown + THREADS, 0)[1] = of_peer(shown + THREADS + 1, 0)[0];
  if (mode == write_before_begin && thread == 5) *of_peer(shown + 5, (rank + 1) % size) = 0;
  if (mode == halves) {
    __cluster_barrier_arrive();
  } else if (mode != straight_on) {
    cluster_barrier();
  }
  for (int turn = 0; turn < 2; ++turn) {
    const bool last = turn == 1;
    if (mode == halves) __cluster_barrier_wait();
    shown[thread] = value;
    if (mode == write_to_peer && thread == 5) *of_peer(shown + 5, (rank + 1) % size) = 0;
    if (mode != no_first_barrier) cluster_barrier();
    const bool early = mode == early_arrival && rank == 1 && thread == 5 && !last;
    if (early) __cluster_barrier_arrive();
    float sum = 0;
    const bool alone = mode == no_last_barrier && last && rank != 0;
    for (int i = 0; i < peers; ++i) sum += *of_peer(shown + thread, alone ? rank : i);
    if (mode == no_such_rank && thread == 7) sum += *of_peer(shown, size);
    if (mode == beyond_peers_memory && thread == 7) sum += of_peer(shown, (rank + 1) % size)[THREADS];
    value = sum;
    if (early) {
      __cluster_barrier_wait();
    } else if (mode == halves) {
      __cluster_barrier_arrive();
    } else if (last ? mode != no_last_barrier : mode != no_second_barrier) {
      cluster_barrier();
    }
  }
  y[at] = value;
  if (mode == halves) __cluster_barrier_wait();
  if (mode == through_global) cluster_barrier();
  if (mode >= through_global && rank == 0) y[at] = y[at + blockDim.x];
}

extern "C" int run_sums(int mode, void* x, void* y, int64_t across, int64_t down, int64_t size) {
  return fusegen::launch(sums, dim3(across, down, size), dim3(THREADS), THREADS * sizeof(float), nullptr, mode,
                         static_cast<float*>(x), static_cast<float*>(y), int(size));
}
""".replace("THREADS", str(THREADS))
MODES = [word.strip() for word in CLUSTERS.split("enum Mode {")[1].split("}")[0].split(",") if word.strip()]


@pytest.fixture(scope="module")
def clusters(build):
    return build(CLUSTERS, "clusters")


def sums(library, mode, size=4, across=3, clusters_down=2, seed=0, peers=None):
    """What the blocks store, [across, clusters, size, threads], and what they should: the first `peers` blocks' sum,
    as often as there are peers."""
    shape = (across, clusters_down, size, THREADS)
    x = torch.arange(across * clusters_down * size * THREADS, dtype=torch.float32).reshape(shape) % 11
    y = Buffer.poisoned(x.shape, torch.float32)
    sizes = across, clusters_down, size
    library.call("run_sums", MODES.index(mode), Buffer.from_tensor(x, readonly=True), y, *sizes, seed=seed)
    peers = peers or size
    return y.tensor(), (peers * x[:, :, :peers].sum(2, keepdim=True)).expand(x.shape)


@pytest.mark.parametrize("mode", ["correct", "halves", "straight_on"])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_sums_over_clusters(clusters, size, mode):
    for seed in SEEDS:
        found, expected = sums(clusters, mode, size, seed=seed)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("mode", ["exited_block", "arrived_and_exited"])
def test_blocks_that_have_exited_count_as_arrived(clusters, mode):
    for seed in SEEDS:
        found, expected = sums(clusters, mode, size=4, peers=3, seed=seed)
        assert torch.equal(found[:, :, :3], expected[:, :, :3]) and found[:, :, 3].isnan().all()


_IN_BETWEEN = "with no cluster barrier in between"


@pytest.mark.parametrize(
    "mode, message",
    [
        ("no_first_barrier", r"reads byte \d+ of another block's 256 bytes of shared memory, which "
                             rf"(nothing has written|another block of the cluster has written, {_IN_BETWEEN})"),
        ("no_second_barrier", r"(reads|writes) byte \d+ of (the|another) block's 256 bytes of shared memory, which "
                              rf"another block of the cluster has (read|written), {_IN_BETWEEN}"),
        ("early_arrival", r"of shared memory, which another block of the cluster has (read|written), "
                          rf"{_IN_BETWEEN}|exits with no cluster barrier"),
        ("no_such_rank", "asks for block 4 of a cluster of 4"),
        ("beyond_own_memory", "asks another block for byte 260 of 256 bytes of shared memory"),
        ("beyond_peers_memory", r"reads byte 256 of another block's 256 bytes of shared memory \["),
        ("write_to_peer", r"writes byte 20 of (the|another) block's 256 bytes of shared memory, which another "
                          rf"block of the cluster has written, {_IN_BETWEEN}"),
        ("write_before_begin", "writes another block's shared memory, with no cluster barrier behind which that block"),
        ("wait_first", r"waits for the cluster's barrier at kernels.cu:\d+ and has not arrived"),
        ("arrive_twice", r"arrives at the cluster's barrier at kernels.cu:\d+ and has not waited since it last did"),
        ("block_barrier", r"thread \(40, 0, 0\): waits at kernels.cu:\d+ for the block's barrier while thread "
                          r"\(\d+, 0, 0\) waits at kernels.cu:\d+ for the cluster's"),
        ("shuffle", r"thread \(40, 0, 0\): waits at kernels.cu:\d+ with mask 0xffffffff for lane \d+, which waits at "
                    r"kernels.cu:\d+ for the cluster's barrier"),
        ("through_global_without_barrier", r"global memory at .*, which (nothing has written|another block of the "
                                           rf"cluster has (read|written), {_IN_BETWEEN}), argument 2"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_every_time(clusters, mode, message):
    for seed in SEEDS:
        with pytest.raises(EmulationError, match=rf"run_sums: sums\(.*block \(\d+, \d+, \d+\).*({message})"):
            sums(clusters, mode, across=1, clusters_down=1, seed=seed)
    assert torch.equal(*sums(clusters, "correct"))  # nothing is left of it


def test_a_block_must_not_exit_while_others_read_its_memory(clusters):
    """Whoever comes first."""
    found = set()
    for seed in range(12):
        with pytest.raises(EmulationError) as raised:
            sums(clusters, "no_last_barrier", size=2, across=1, clusters_down=1, seed=seed)
        found.add(str(raised.value).partition("): ")[2].partition(" [")[0])
    assert found == {
        "exits with no cluster barrier behind which no other block accesses this one's shared memory",
        "reads the shared memory of a block that has exited",
    }


def test_barriers_order_global_memory(clusters):
    for seed in SEEDS:
        assert torch.equal(*sums(clusters, "through_global", seed=seed))


def test_clusters_of_more_blocks_than_every_gpu_runs_are_refused(clusters):
    with pytest.raises(EmulationError, match="returned CUDA error 9"):
        sums(clusters, "correct", size=9)


def test_without_checks_a_missing_barrier_shows_in_the_sums(build):
    library = build(CLUSTERS, "unchecked", checked=False)
    assert all(torch.equal(*sums(library, "correct", seed=seed)) for seed in SEEDS)
    for mode in ("no_first_barrier", "no_second_barrier"):
        results = [sums(library, mode, size=8, seed=seed) for seed in SEEDS]
        assert sum(not torch.equal(*result) for result in results) >= 2
