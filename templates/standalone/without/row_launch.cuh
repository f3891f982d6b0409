// No program of this chain keeps rows in registers: names alone.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "../shapes.cuh"
#include "program.cuh"

namespace fusegen {

struct RowLaunch {
  dim3 grid;
  int items;
  int64_t sample_blocks;
};
template <int kFirst, int kVec, bool kPacked, class P>
RowLaunch row_fit(const P& p, const Shapes& shapes);
template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_row(
    const P& p, RowLaunch row, const Shapes& shapes, int64_t vector_end, cudaStream_t stream);

struct RowShared {
  int threads;
};
template <class P, int kFirst>
struct RowPasses {
  static constexpr bool kHasShared = false;
};
template <int kFirst, int kVec, bool kPacked, class P>
bool row_fits_registers(const P& p, const Shapes& shapes);
template <int kFirst, int kVec, bool kPacked, class P>
RowShared row_shared_fit(const P& p);
template <int kFirst, int kVec, bool kPacked, class P>
cudaError_t launch_row_shared(
    const P& p, const RowShared& row, const Shapes& shapes, int64_t vector_end,
    cudaStream_t stream);

}  // namespace fusegen
