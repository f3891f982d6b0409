// Calls of an op some rows at a time, so that the product of all rows is never in memory.
//
// Each chunk is a call by the op's table: the product, then kernels that take it to results and to
// gradients, then the products that give the gradients of its operands. What has rows is taken and
// made in slices. The gradients of what has none are added up, in the order of the rows.
#pragma once

#include "torch_call.h"
#include "torch_narrow.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// A sum of so many chunks in 16 bits is rounded so often; of more it is one of float32.
constexpr int64_t kMostNarrowSums = 8;

// So many rows of a tensor from `first` on, over the same memory.
inline Tensor rows_of(const Tensor& tensor, int64_t first, int64_t count) {
  std::vector<int64_t> sizes, strides;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    sizes.push_back(i ? tensor.size(i) : count);
    strides.push_back(tensor.stride(i));
  }
  AtenTensorHandle result = nullptr;
  check_torch("aten::as_strided",
              aoti_torch__reinterpret_tensor(tensor.get(), tensor.dim(), sizes.data(),
                                             strides.data(), first * strides[0], &result));
  return Tensor(result);
}

inline void copy_rows(const Tensor& to, int64_t first, const Tensor& from) {
  Tensor rows = rows_of(to, first, from.size(0));
  copy_(rows, from);
}

// A gradient with no rows, of all chunks: [chunks, ...] until all are there.
class ChunkSum {
 public:
  ChunkSum(const Tensor& like, int64_t chunks) : dtype_(like.scalar_type()) {
    const bool is_double = dtype_ == ScalarType::Double;
    for (int64_t i = 0; i < like.dim(); ++i) sizes_.push_back(like.size(i));
    terms_ = empty(like, is_double ? dtype_ : ScalarType::Float, {chunks, like.numel()});
  }
  void take(int64_t chunk, const Tensor& term) {
    const std::vector<int64_t> row{1, term.numel()};
    copy_rows(*terms_, chunk, torch::stable::view(term, row));
  }
  Tensor total() const {
    const std::vector<int64_t> dim{0};
    const Tensor sum = torch::stable::view(torch::stable::sum(*terms_, dim), sizes_);
    Tensor rounded = empty(sum, dtype_, Shape(sizes_.data(), sizes_.size()));
    return copy_(rounded, sum);
  }

 private:
  ScalarType dtype_;
  std::vector<int64_t> sizes_;
  OptionalTensor terms_;
};

// The gradient of a product's weight. Of 16 bits, it is added up by the library in the product: in
// 16 bits for few chunks, and in float32 for more.
class WeightSum final : public RowChunk {
 public:
  WeightSum(const Tensor& weight, int64_t chunks)
      : weight_(weight), is_wide_(is_narrow(weight.scalar_type()) && chunks > kMostNarrowSums) {}

  void add_weight_gradient(
      const Products& products, const Tensor& dz, const Operands& of) override {
    const bool adds = sum_.has_value();
    if (!products.are_plain()) {
      const Tensor term = products.weight_gradient(dz, of);
      sum_ = adds ? torch::stable::subtract(*sum_, term, -1) : term;
      return;
    }
    if (!adds) sum_ = like_weight(is_wide_ ? ScalarType::Float : weight_.scalar_type());
    (is_wide_ ? multiply_narrow : add_mm)(*sum_, transposed(dz), **of.x, adds);
  }
  Tensor total() const {
    if (!is_wide_) return *sum_;
    Tensor rounded = like_weight(weight_.scalar_type());
    return copy_(rounded, *sum_);
  }

 private:
  Tensor like_weight(ScalarType dtype) const {
    return empty(weight_, dtype, {weight_.size(0), weight_.size(1)});
  }

  const Tensor& weight_;
  const bool is_wide_;
  OptionalTensor sum_;
};

class ChunkedCall {
 public:
  // As OpCall has them. The op's arguments begin with the operands of the product.
  ChunkedCall(const Op& op, Slot* slots, const Lists& lists, uint64_t* arguments)
      : op_(op), slots_(slots), lists_(lists), needs_(lists.needs), arguments_(arguments),
        args_(op.name, op.fields[0].name, *slots[0].given), parts_(size_t(op.count)) {}

  // The results, then the gradients that are wanted, in the order of the table.
  std::vector<Tensor> run() {
    read_numbers();
    WeightSum weight_sum(*slots_[1].given, chunks_);
    for (int64_t first = 0, chunk = 0; first < rows_; first += size_, ++chunk) {
      slice(first, std::min(size_, rows_ - first));
      std::fill_n(arguments_, (op_.arguments_bytes + 7) / 8, 0);
      keep(OpCall(op_, parts_.data(), lists_, arguments_, &weight_sum).run(), chunk, first);
    }
    return results(weight_sum);
  }

 private:
  static bool has_rows(const Field& field) {
    return field.count > 0 && field.dims[0].symbol == Symbol::kRows;
  }

  void read_numbers() {
    rows_ = slots_[0].given->size(0);
    for (int i = 0; i < op_.count; ++i) {
      const Field& field = op_.fields[i];
      if (field.use == Use::kChunk) size_ = slots_[i].integer;
      if (field.use == Use::kNeeds) args_.list("needs", needs_.size(), size_t(field.count));
      if (field.use == Use::kPrecision) precision_ = slots_[i].integer;
    }
    args_.within("rows", rows_, 1, std::numeric_limits<int64_t>::max());
    args_.within("chunk", size_, 1, std::numeric_limits<int64_t>::max());
    if (op_.split) weight_pieces_ = op_.split(*slots_[1].given, precision_, op_.error_text);
    chunks_ = (rows_ + size_ - 1) / size_;
  }

  // The arguments of the call for some rows.
  void slice(int64_t first, int64_t count) {
    bool is_of_weight = false;
    for (int i = 0; i < op_.count; ++i) {
      const Field& field = op_.fields[i];
      Slot& slot = parts_[size_t(i)] = Slot();
      slot.number = slots_[i].number, slot.integer = slots_[i].integer;
      const OptionalTensor& whole = slots_[i].given;
      if (field.use == Use::kPieces) {
        const Tensor& x = *parts_[0].given;
        slot.given = is_of_weight ? weight_pieces_ : op_.split(x, precision_, op_.error_text);
        is_of_weight = true;
      } else if (whole && has_rows(field)) {
        if (whole->dim() == 0 || whole->size(0) != rows_) {
          fail(op_.name, field.name, ": expected ", rows_, " rows");
        }
        slot.given = rows_of(*whole, first, count);
      } else {
        slot.given = whole;
      }
    }
  }

  // What the table makes, in its order: whether a chunk's call returns it, and whether it has rows.
  template <class F>
  void each_made(const F& f) const {
    for (int i = 0; i < op_.count; ++i) {
      const Field& field = op_.fields[i];
      if (field.use == Use::kResult) f(true, has_rows(field));
      if (field.use == Use::kProductGradient && needs_[0]) f(true, true);
      if (field.use == Use::kProductGradient && needs_[1]) f(false, false);
      if (field.use == Use::kGradient && needs_[size_t(field.need)]) f(true, has_rows(field));
    }
  }

  // Takes what the call of a chunk has made.
  void keep(const std::vector<Tensor>& made, int64_t chunk, int64_t first) {
    size_t from = 0, whole = 0, sum = 0;
    each_made([&](bool is_returned, bool by_rows) {
      if (!is_returned) return;
      const Tensor& part = made[from++];
      if (by_rows) {
        if (chunk == 0) whole_.push_back(all_rows(part));
        copy_rows(whole_[whole++], first, part);
      } else {
        if (chunk == 0) sums_.push_back(ChunkSum(part, chunks_));
        sums_[sum++].take(chunk, part);
      }
    });
  }
  Tensor all_rows(const Tensor& part) const {
    std::vector<int64_t> sizes{rows_};
    for (int64_t i = 1; i < part.dim(); ++i) sizes.push_back(part.size(i));
    return empty(part, part.scalar_type(), Shape(sizes.data(), sizes.size()));
  }

  std::vector<Tensor> results(const WeightSum& weight_sum) const {
    std::vector<Tensor> found;
    size_t whole = 0, sum = 0;
    each_made([&](bool is_returned, bool by_rows) {
      found.push_back(!is_returned ? weight_sum.total()
                      : by_rows    ? whole_[whole++]
                                   : sums_[sum++].total());
    });
    return found;
  }

  const Op& op_;
  Slot* const slots_;
  const Lists& lists_;
  const std::vector<bool>& needs_;
  uint64_t* const arguments_;
  const Arguments args_;
  std::vector<Slot> parts_;
  int64_t rows_ = 0, size_ = 0, chunks_ = 0, precision_ = 0;
  OptionalTensor weight_pieces_;
  std::vector<Tensor> whole_;
  std::vector<ChunkSum> sums_;
};

}}  // namespace fusegen::glue
