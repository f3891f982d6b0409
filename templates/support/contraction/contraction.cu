// Products of float32 matrices on tensor cores of 16 bits; contraction.h says how.
#include "contraction.h"

#include "combine.cuh"
#include "epilogue.cuh"
#include "recheck.cuh"
#include "split.cuh"
#include "tensor_cores.cuh"

namespace {
using fusegen::Operation;
using fusegen::Pieces;
using fusegen::PiecesLayout;
using fusegen::ProductKind;
using fusegen::SplitProduct;
using fusegen::StoreProduct;

cudaError_t multiply(ProductKind kind, const Operation& operation, cudaStream_t stream) {
  using fusegen::launch_tensor_cores;
  const StoreProduct store;
  switch (kind) {
    case ProductKind::kForward: return launch_tensor_cores<false, false>(operation, store, stream);
    case ProductKind::kInputGradient:
      return launch_tensor_cores<false, true>(operation, store, stream);
    default: return launch_tensor_cores<true, true>(operation, store, stream);
  }
}

cudaStream_t stream_of(const SplitProduct& p) { return static_cast<cudaStream_t>(p.stream); }

}  // namespace

extern "C" {
int fusegen_split(
    const float* values, const PiecesLayout* layout, const void* folded,
    const PiecesLayout* folded_layout, void* pieces, void* stream) {
  Pieces others{};
  if (folded != nullptr) others = fusegen::pieces_of(folded, *folded_layout);
  return fusegen::launch_split(values, *layout, folded == nullptr ? nullptr : &others,
                               fusegen::pieces_of(pieces, *layout),
                               static_cast<cudaStream_t>(stream));
}

int fusegen_split_has_kernel() { return fusegen::has_tensor_core_kernel(); }

int fusegen_split_product(const SplitProduct* p) {
  if (!fusegen::has_tensor_core_kernel()) return cudaErrorNotSupported;
  const Operation operation = fusegen::operation_of(*p);
  const cudaError_t error = multiply(p->kind, operation, stream_of(*p));
  if (error != cudaSuccess) return error;
  return fusegen::launch_recheck(operation.product, StoreProduct(), stream_of(*p));
}

int fusegen_split_finish(const SplitProduct* p, const float* cross) {
  const Operation operation = fusegen::operation_of(*p);
  const cudaError_t error = fusegen::launch_combine(operation.product, cross, stream_of(*p));
  if (error != cudaSuccess) return error;
  return fusegen::launch_recheck(operation.product, StoreProduct(), stream_of(*p));
}

}  // extern "C"
