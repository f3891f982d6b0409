// Matrix products in which the bits of a row do not depend on how many others there are, nor on its
// place among them: of every row the library adds up the same products in the same order.
#pragma once

#include "call.h"
#include "torch_multiply.h"
#include "torch_narrow.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

#ifdef FUSEGEN_EMULATE

// result = a b + bias, or result + a b, where result is contiguous and of the dtype of a, or
// float32. Each row by itself, in memory of its own: the host's library, too, sums by size and
// alignment.
inline void multiply_rows(
    const Tensor& result, const Tensor& a, const Tensor& b, const Tensor* bias, bool add) {
  for (int64_t i = 0; i < a.size(0); ++i) {
    const Tensor row = copied(part(a, 0, i, 1), a.scalar_type());
    Tensor to = part(result, 0, i, 1);
    if (result.scalar_type() != a.scalar_type()) {
      multiply_narrow(to, row, b, add);
    } else {
      copy_(to, bias ? addmm(*bias, row, b) : mm(row, b));
    }
  }
}

#else

// What cuBLASLt calls these, in every version since CUDA 11.
constexpr int kLtDouble = 1, kLtComputeDouble = 70, kLtComputeTf32 = 77;  // and those of cuBLAS
constexpr int kLtOpA = 3, kLtOpB = 4, kLtEpilogue = 7, kLtBiasPointer = 8;  // of a product
constexpr int kLtEpilogueBias = 4;
constexpr int kLtWorkspace = 1, kLtReductions = 3, kLtAlignments = 5;  // of a preference
constexpr int kCublasTf32Math = 3;                                     // cublasMath_t

struct LtAlgorithm {
  uint64_t data[8];
};
struct LtFound {
  LtAlgorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

using LtSet = int (*)(void* of, int attribute, const void* value, size_t bytes);

// cuBLASLt, on which libtorch_cuda.so depends.
struct CublasLt {
  AOTITorchError (*get_handle)(void**) =
      find<decltype(get_handle)>("torch_get_current_cuda_blas_handle");
  int (*get_math)(void* handle, int* mode) = find<decltype(get_math)>("cublasGetMathMode");
  int (*create_product)(void**, int compute, int scale) =
      find<decltype(create_product)>("cublasLtMatmulDescCreate");
  int (*destroy_product)(void*) = find<decltype(destroy_product)>("cublasLtMatmulDescDestroy");
  LtSet set_product = find<LtSet>("cublasLtMatmulDescSetAttribute");
  int (*create_layout)(void**, int type, uint64_t rows, uint64_t columns, int64_t stride) =
      find<decltype(create_layout)>("cublasLtMatrixLayoutCreate");
  int (*destroy_layout)(void*) = find<decltype(destroy_layout)>("cublasLtMatrixLayoutDestroy");
  int (*create_preference)(void**) =
      find<decltype(create_preference)>("cublasLtMatmulPreferenceCreate");
  int (*destroy_preference)(void*) =
      find<decltype(destroy_preference)>("cublasLtMatmulPreferenceDestroy");
  LtSet set_preference = find<LtSet>("cublasLtMatmulPreferenceSetAttribute");
  int (*suggest)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference,
                 int most, LtFound*, int* count) =
      find<decltype(suggest)>("cublasLtMatmulAlgoGetHeuristic");
  int (*check)(void* handle, void* product, void* a, void* b, void* c, void* d,
               const LtAlgorithm*, LtFound*) = find<decltype(check)>("cublasLtMatmulAlgoCheck");
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout,
                  const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                  void* d, void* d_layout, const LtAlgorithm*, void* workspace, size_t bytes,
                  void* stream) = find<decltype(multiply)>("cublasLtMatmul");

  static const CublasLt& get() {
    static const CublasLt found;
    const bool is_whole = found.get_handle && found.get_math && found.create_product &&
        found.destroy_product && found.set_product && found.create_layout &&
        found.destroy_layout && found.create_preference && found.destroy_preference &&
        found.set_preference && found.suggest && found.check && found.multiply;
    if (!is_whole) fail("fusegen", "this version of torch gives no access to cuBLASLt");
    return found;
  }
};

inline void check_lt(const char* what, int status) {
  if (status != 0) fail(what, "cuBLAS status ", status);
}

// What cuBLASLt makes and destroys.
using LtObject = std::unique_ptr<void, int (*)(void*)>;

// How a matrix lies in memory, with the columns first as cuBLAS has it.
struct LtMatrix {
  int type;
  int64_t rows, columns, stride;
  uint32_t alignment;  // in bytes, 16 at most

  LtObject layout() const {
    const CublasLt& lt = CublasLt::get();
    void* made = nullptr;
    check_lt("cublasLtMatrixLayoutCreate",
             lt.create_layout(&made, type, uint64_t(rows), uint64_t(columns), stride));
    return {made, lt.destroy_layout};
  }
};

inline int cublas_code(ScalarType dtype) {
  return dtype == ScalarType::Double ? kLtDouble
      : dtype == ScalarType::Float   ? kCublasFloat
      : dtype == ScalarType::Half    ? kCublasHalf
                                     : kCublasBFloat16;
}

inline int64_t lt_bytes(ScalarType dtype) {
  return dtype == ScalarType::Double ? 8 : dtype == ScalarType::Float ? 4 : 2;
}

// The largest power of two up to 16 that divides a number of bytes.
inline uint32_t dividing_power(uint64_t bytes) {
  uint32_t power = 1;
  while (power < 16 && bytes % (2 * power) == 0) power *= 2;
  return power;
}

// The matrix with rows at multiples of `stride` elements.
inline LtMatrix lt_matrix(const Tensor& like, int64_t rows, int64_t columns, int64_t stride) {
  const ScalarType dtype = like.scalar_type();
  return {cublas_code(dtype), rows, columns, stride,
          dividing_power(uint64_t(stride * lt_bytes(dtype)))};
}

// Whether the rows of a matrix, or its columns, follow each other in memory without overlap.
inline bool has_rows(const Tensor& b) { return b.stride(1) == 1 && b.stride(0) >= b.size(1); }
inline bool has_columns(const Tensor& b) { return b.stride(0) == 1 && b.stride(1) >= b.size(0); }

// A matrix with one of these, in the memory of b if that has.
inline Tensor as_matrix(const Tensor& b) {
  return has_rows(b) || has_columns(b) ? b : copied(b, b.scalar_type());
}

// A matrix of contiguous rows that begin where lt_matrix() says, whatever memory it has come in.
inline Tensor aligned_rows(const Tensor& matrix) {
  const LtMatrix wanted = lt_matrix(matrix, matrix.size(1), matrix.size(0), matrix.size(1));
  const auto address = reinterpret_cast<uintptr_t>(read(matrix));
  const bool is_there = matrix.is_contiguous() && address % wanted.alignment == 0;
  return is_there ? matrix : copied(matrix, matrix.scalar_type());
}

// result^T = b^T a^T for some number of rows: all that the choice of an algorithm depends on.
class RowProduct {
 public:
  RowProduct(const CublasLt& lt, void* handle, const Tensor& result, const Tensor& a,
             const Tensor& b, const Tensor* bias)
      : lt_(lt), handle_(handle), is_transposed_(!has_rows(b)), has_bias_(bias != nullptr) {
    const int64_t depth = a.size(1), columns = b.size(1);
    b_ = is_transposed_ ? lt_matrix(b, depth, columns, b.stride(1))
                        : lt_matrix(b, columns, depth, b.stride(0));
    b_.alignment = std::min(b_.alignment, dividing_power(reinterpret_cast<uintptr_t>(read(b))));
    a_ = lt_matrix(a, depth, 0, depth);
    result_ = lt_matrix(result, columns, 0, columns);
    int math = 0;
    check_lt("cublasGetMathMode", lt.get_math(handle, &math));
    const bool is_tf32 = a_.type == kCublasFloat && math == kCublasTf32Math;
    compute_ = a_.type == kLtDouble ? kLtComputeDouble
        : is_tf32                   ? kLtComputeTf32
                                    : kCublasComputeFloat;
    void* made = nullptr;
    check_lt("cublasLtMatmulDescCreate",
             lt.create_product(&made, compute_, is_double() ? kLtDouble : kCublasFloat));
    product_ = LtObject(made, lt.destroy_product);
    set(kLtOpA, is_transposed_ ? kCublasTransposed : kCublasPlain);
    if (!bias) return;
    set(kLtEpilogue, kLtEpilogueBias);
    set(kLtBiasPointer, read(*bias));
  }

  bool is_double() const { return compute_ == kLtComputeDouble; }
  void* get() const { return product_.get(); }

  struct Layouts {
    LtObject b, a, result;
  };
  Layouts layouts(int64_t rows) const {
    LtMatrix a = a_, result = result_;
    a.columns = result.columns = rows;
    return {b_.layout(), a.layout(), result.layout()};
  }

  // Whether an algorithm takes so many rows, and how much workspace: 0 where it does.
  int check(const LtAlgorithm& algorithm, int64_t rows, LtFound& found) const {
    const Layouts all = layouts(rows);
    return lt_.check(handle_, get(), all.b.get(), all.a.get(), all.result.get(), all.result.get(),
                     &algorithm, &found);
  }

  // That which the library suggests for kRowsOfProducts rows, of those that take any number of
  // rows and add up all of a row's products in one place: others divide them by the size.
  // None for some products of few features.
  std::optional<LtAlgorithm> algorithm(int device) const {
    using Key = std::array<int64_t, 14>;
    static std::mutex mutex;
    static std::map<Key, std::optional<LtAlgorithm>> known;
    const Key key{device,     compute_,       has_bias_,      is_transposed_,  b_.type,
                  b_.rows,    b_.columns,     b_.stride,      b_.alignment,    a_.rows,
                  a_.stride,  a_.alignment,   result_.type,   result_.rows};
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(key);
    return found != known.end() ? found->second : known.emplace(key, suggested()).first->second;
  }

 private:
  template <class Value>
  void set(int attribute, Value value) {
    check_lt("cublasLtMatmulDescSetAttribute",
             lt_.set_product(get(), attribute, &value, sizeof value));
  }

  LtObject preference() const {
    void* made = nullptr;
    check_lt("cublasLtMatmulPreferenceCreate", lt_.create_preference(&made));
    LtObject preference(made, lt_.destroy_preference);
    const auto prefer = [&](int attribute, auto value) {
      check_lt("cublasLtMatmulPreferenceSetAttribute",
               lt_.set_preference(made, attribute, &value, sizeof value));
    };
    prefer(kLtWorkspace, size_t(0));
    prefer(kLtReductions, uint32_t(0));
    int attribute = kLtAlignments;
    for (const LtMatrix& each : {b_, a_, result_, result_}) prefer(attribute++, each.alignment);
    return preference;
  }

  std::optional<LtAlgorithm> suggested() const {
    constexpr int kMost = 16;
    LtFound all[kMost];
    int count = 0;
    const Layouts of = layouts(kRowsOfProducts);
    check_lt("cublasLtMatmulAlgoGetHeuristic",
             lt_.suggest(handle_, get(), of.b.get(), of.a.get(), of.result.get(), of.result.get(),
                         preference().get(), kMost, all, &count));
    for (int i = 0; i < count; ++i) {
      bool takes_all = all[i].status == 0;
      LtFound found;
      for (const int64_t rows : {1, 2, 33, 1 << 16}) {
        takes_all = takes_all && check(all[i].algorithm, rows, found) == 0;
      }
      if (takes_all) return all[i].algorithm;
    }
    return std::nullopt;
  }

  const CublasLt& lt_;
  void* const handle_;
  const bool is_transposed_, has_bias_;
  LtMatrix b_{}, a_{}, result_{};
  int compute_ = 0;
  LtObject product_{nullptr, nullptr};
};

inline void multiply_padded(
    const Tensor& result, const Tensor& a, const Tensor& b, const Tensor* bias, bool add);

// result = a b + bias, or result + a b, where result is contiguous and of the dtype of a, or
// float32.
inline void multiply_rows(
    const Tensor& result, const Tensor& a, const Tensor& b, const Tensor* bias, bool add) {
  const int64_t rows = result.size(0);
  if (rows == 0 || result.size(1) == 0) return;
  if (a.size(1) == 0) {  // no sum has terms, and the library takes none such
    Tensor to = result;
    if (!add) copy_(to, bias ? addmm(*bias, a, b) : mm(a, b));
    return;
  }
  const CublasLt& lt = CublasLt::get();
  void* handle = nullptr;
  check_torch("fusegen: the handle of cuBLAS", lt.get_handle(&handle));
  const Tensor left = as_matrix(b), right = aligned_rows(a);
  const RowProduct product(lt, handle, result, right, left, bias);
  const std::optional<LtAlgorithm> algorithm = product.algorithm(result.get_device_index());
  if (!algorithm) return multiply_padded(result, a, b, bias, add);
  LtFound found{};
  check_lt("cublasLtMatmulAlgoCheck", product.check(*algorithm, rows, found));
  const OptionalTensor memory = workspace(result, int64_t(found.workspace));
  const RowProduct::Layouts of = product.layouts(rows);
  const float one = 1, kept = add ? 1 : 0;
  const double one_double = 1, kept_double = kept;
  const bool is_double = product.is_double();
  check_lt("cublasLtMatmul",
           lt.multiply(handle, product.get(), is_double ? (const void*)&one_double : &one,
                       read(left), of.b.get(), read(right), of.a.get(),
                       is_double ? (const void*)&kept_double : &kept, read(result),
                       of.result.get(), write(result), of.result.get(), &*algorithm, write(memory),
                       found.workspace, current_cuda_stream(result.get_device_index())));
}

// A matrix, or a vector as one row, in the corner of zeros.
inline Tensor padded(const Tensor& values, int64_t rows, int64_t columns) {
  Tensor zeros = empty(values, values.scalar_type(), {rows, columns});
  torch::stable::zero_(zeros);
  const bool is_vector = values.dim() == 1;
  const Tensor own = is_vector ? matrix_view(values, {1, values.size(0)}, {0, 1}, 0) : values;
  Tensor corner = part(part(zeros, 0, 0, own.size(0)), 1, 0, own.size(1));
  copy_(corner, own);
  return zeros;
}

// The same with zeros as further features: of so many there are algorithms.
inline void multiply_padded(
    const Tensor& result, const Tensor& a, const Tensor& b, const Tensor* bias, bool add) {
  const auto more_of = [](int64_t features) { return (features + 15) / 16 * 16; };
  const int64_t rows = a.size(0), depth = more_of(a.size(1)), columns = more_of(b.size(1));
  if (depth == a.size(1) && columns == b.size(1)) {
    fail("cublasLtMatmulAlgoGetHeuristic", "no algorithm takes any number of rows");
  }
  const Tensor more = padded(result, rows, columns);
  OptionalTensor added;
  if (bias) added = torch::stable::view(padded(*bias, 1, columns), {columns});
  multiply_rows(more, padded(a, rows, depth), padded(b, depth, columns),
                added ? &*added : nullptr, add);
  Tensor to = result;
  copy_(to, part(more, 1, 0, b.size(1)));
}

#endif

}}  // namespace fusegen::glue
