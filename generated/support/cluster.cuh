// Sums and moments over a cluster: blocks that run at the same time and read each other's shared
// memory. Each block adds in the order of the ranks, so that all have the same bits.
//
// A cluster consists of the blocks that differ in blockIdx.z alone, which is a block's rank. In a
// grid with a single block in z there are no clusters, and these functions do nothing.
//
// Kernels with tiles of columns and the row reduction use these barriers; the row kernel has
// exchange.cuh. A kernel arrives once when it begins and waits once when it ends. In between, each
// exchange waits for the arrival before it. So no block overwrites values that another block still
// reads, and no block ends while another reads its shared memory.
#pragma once

#include <cuda_runtime.h>

#include "reduce_columns.cuh"

namespace fusegen {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900

// No clusters before sm_90: launchers make none there.
__device__ __forceinline__ bool in_cluster() { return false; }
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_wait() {}
template <typename T>
__device__ __forceinline__ const T* of_peer(const T* own, int) {
  return own;
}

#else

__device__ __forceinline__ bool in_cluster() { return gridDim.z > 1; }

// The two halves of a cluster barrier: a thread that has waited sees what the other threads wrote
// before they arrived. Every thread alternates between them.
__device__ __forceinline__ void cluster_arrive() {
  if (in_cluster()) __cluster_barrier_arrive();
}
__device__ __forceinline__ void cluster_wait() {
  if (in_cluster()) __cluster_barrier_wait();
}

// The address in the shared memory of the block of this rank that corresponds to `own` in this
// block.
template <typename T>
__device__ __forceinline__ const T* of_peer(const T* own, int rank) {
  return static_cast<const T*>(__cluster_map_shared_rank(own, unsigned(rank)));
}

#endif

// Gathers the values that row 0 of threads of each block of the cluster has: N of each array, array
// by array and block by block, for all threads of this block. `exchange` holds gridDim.z + 1 times
// as many.
template <int N, typename Acc, typename... More>
__device__ __forceinline__ Acc* gather(
    Acc* exchange, const Acc (&first)[N], const More (&... more)[N]) {
  constexpr int kArrays = 1 + sizeof...(More);
  const Acc* const arrays[kArrays] = {first, more...};
  const int values = kArrays * blockDim.x * N;
  cluster_wait();
  if (threadIdx.y == 0) {
#pragma unroll
    for (int i = 0; i < kArrays * N; ++i) {
      exchange[(i / N * blockDim.x + threadIdx.x) * N + i % N] = arrays[i / N][i % N];
    }
  }
  cluster_arrive();
  cluster_wait();
  // One thread per value, as reads from another block have a long latency.
  Acc* const all = exchange + values;
#pragma unroll 1
  for (int i = thread_index(); i < int(gridDim.z) * values; i += blockDim.x * blockDim.y) {
    const Acc* peer = of_peer(exchange, i / values);
    all[i] = peer[i % values];
  }
  __syncthreads();
  cluster_arrive();
  return all;
}

// Every thread of a column gets its results, which some threads of the block have computed.
template <int N, typename Acc, typename... More>
__device__ __forceinline__ void broadcast(
    const Acc* results, Acc (&first)[N], More (&... more)[N]) {
  constexpr int kArrays = 1 + sizeof...(More);
  Acc* const arrays[kArrays] = {first, more...};
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kArrays * N; ++i) {
    arrays[i / N][i % N] = results[(i / N * blockDim.x + threadIdx.x) * N + i % N];
  }
}

// Sums N values of each array, the same in all threads of a column of a block, over the cluster.
// `exchange` holds (gridDim.z + 1) * blockDim.x * N values for each array.
template <int N, typename Acc, typename... More>
__device__ __forceinline__ void sum_over_cluster(
    Acc* exchange, Acc (&first)[N], More (&... more)[N]) {
  if (!in_cluster()) return;
  const int sums = (1 + sizeof...(More)) * blockDim.x * N;
  Acc* const all = gather<N>(exchange, first, more...);
  // One thread per sum.
#pragma unroll 1
  for (int i = thread_index(); i < sums; i += blockDim.x * blockDim.y) {
    Acc total = all[i];
#pragma unroll 1
    for (int rank = 1; rank < int(gridDim.z); ++rank) total += all[rank * sums + i];
    all[i] = total;
  }
  broadcast<N>(all, first, more...);
}

// The moments of a column's `rows` values, from the moments that each block has of its
// rows_per_block rows; the last blocks have fewer rows or none. Each block has `columns` means,
// then as many sums of squares. The first block's mean is the shift of the means, so that equal
// means have distances of zero.
template <typename Acc>
__device__ __forceinline__ Moments<Acc> moments_of_blocks(
    const Acc* means, int columns, int rows_per_block, int rows) {
  const Acc* const m2s = means + columns;
  const int stride = 2 * columns;
  const auto count = [=](int rank) {
    const int left = rows - rank * rows_per_block;
    return Acc(left < rows_per_block ? left : rows_per_block);
  };
  const Acc inverse_count = Acc(1) / Acc(rows);
  const Acc shift = means[0];
  Acc sum = Acc(0);
#pragma unroll 1
  for (int rank = 1; rank * rows_per_block < rows; ++rank) {
    sum += count(rank) * (means[rank * stride] - shift);
  }
  Moments<Acc> all{shift + sum * inverse_count, Acc(0)};
  Acc distances = Acc(0);
#pragma unroll 1
  for (int rank = 0; rank * rows_per_block < rows; ++rank) {
    const Acc distance = means[rank * stride] - all.mean;
    distances += count(rank) * distance;
    all.m2 += m2s[rank * stride] + count(rank) * distance * distance;
  }
  correct(all, distances, inverse_count);
  return all;
}

// The moments over the cluster, from those that each block has of its rows in all threads of a
// column. `exchange` holds (gridDim.z + 1) * blockDim.x * 2 N values.
template <int N, typename Acc>
__device__ __forceinline__ void moments_over_cluster(
    Acc* exchange, Moments<Acc> (&moments)[N], int rows_per_block, int rows) {
  if (!in_cluster()) return;
  Acc mean[N];
  Acc m2[N];
#pragma unroll
  for (int v = 0; v < N; ++v) {
    mean[v] = moments[v].mean;
    m2[v] = moments[v].m2;
  }
  const int columns = blockDim.x * N;
  Acc* const all = gather<N>(exchange, mean, m2);
  // One thread per column.
#pragma unroll 1
  for (int column = thread_index(); column < columns; column += blockDim.x * blockDim.y) {
    const auto result = moments_of_blocks(all + column, columns, rows_per_block, rows);
    all[column] = result.mean;
    all[columns + column] = result.m2;
  }
  broadcast<N>(all, mean, m2);
#pragma unroll
  for (int v = 0; v < N; ++v) moments[v] = {mean[v], m2[v]};
}

}  // namespace fusegen
