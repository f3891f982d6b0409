// Calls of an op by its table: checks of all arguments, memory for what it makes, the launch.
#pragma once

#include "torch_arguments.h"
#include "torch_images.h"
#include "torch_multiply.h"
#include "torch_op.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// A field in a call. An argument has come as `given`, `number` or `integer`. tensor: what kernels
// have of it, that or `own`, which is contiguous or which the op has made.
struct Slot {
  OptionalTensor given;
  double number = 0;
  int64_t integer = 0;
  OptionalTensor own;
  const Tensor* tensor = nullptr;

  void keep(Tensor made) {
    own = std::move(made);
    tensor = &*own;
  }
};

constexpr int64_t kVectorBytes = 16;

// What is different in a call for some rows of many: the product's gradient takes the memory of the
// product, and that of the weight, dz^T x, is added up elsewhere.
class RowChunk {
 public:
  virtual ~RowChunk() = default;
  virtual void add_weight_gradient(const Products&, const Tensor& dz, const Operands&) = 0;
};

// The arguments of a call that are lists.
struct Lists {
  std::vector<bool> needs;
  std::vector<int64_t> windows;
};

// What a call of an op takes of the stack.
template <const Op& op>
struct CallMemory {
  Slot slots[op.count];
  uint64_t arguments[(op.arguments_bytes + 7) / 8 + 1] = {};  // the launcher's struct
  Lists lists;
};

class OpCall {
 public:
  // slots: by field, with the arguments in those that are such. arguments: zeros. chunk: null for a
  // call of all rows.
  OpCall(const Op& op, Slot* slots, const Lists& lists, uint64_t* arguments,
         RowChunk* chunk = nullptr)
      : op_(op), slots_(slots), lists_(lists), needs_(lists.needs), arguments_(arguments),
        chunk_(chunk),
        first_(*slots[0].given), args_(op.name, op.fields[0].name, first_), dtypes_(nullptr) {
    for (int64_t& size : sizes_) size = kAny;
  }

  // The results, or the gradients that are wanted, in the order of the table.
  std::vector<Tensor> run() {
    read_numbers();
    dtypes_ = args_.mode(mode_, *op_.modes);
    if (op_.first != Form::kRows) read_images();
    for (int i = 0; i < op_.count; ++i) {
      if (is_tensor(op_.fields[i].use)) check(i);
    }
    check_numbers();

    const Launch launch(first_);
    Call call{mode_, size(kRows), size(kChannels)};
    call.stream = launch.stream;
    if (size(kGroups) != kAny) call.groups = size(kGroups);
    if (size(kSamples) != kAny) call.samples = size(kSamples);
    if (images_) call.positions = images_->positions();
    if (windows_) call.windows = &*windows_;
    const std::unique_ptr<Products> products =
        op_.products ? op_.products(args_, precision_, dtypes_[kActivation], launch.stream,
                                    op_.error_text, op_.by_rows)
                     : std::make_unique<Products>(op_.by_rows);
    const bool in_epilogue = op_.takes_product && products->are_split() && op_.takes_product(&call);
    for (int i = 0; i < op_.count; ++i) make(i, *products, in_epilogue, call);
    for (int i = 0; i < op_.count; ++i) pass(i);
    if (in_epilogue) {
      check_launch((op_.symbol + std::string("_product")).c_str(),
                   products->launch_forward(operands_, *slots_[product_].tensor,
                                            op_.launch_product, call, arguments_),
                   op_.error_text);
    } else if (op_.returns != Returns::kList || op_.gathered || has_made_) {
      const OptionalTensor workspace = glue::workspace(first_, op_.workspace(&call));
      call.workspace = write(workspace);
      check_launch(op_.symbol, op_.launch(&call, arguments_), op_.error_text);
    }
    return results(*products);
  }

 private:
  int64_t& size(Symbol symbol) { return sizes_[int(symbol)]; }
  int64_t size(Symbol symbol) const { return sizes_[int(symbol)]; }

  void read_numbers() {
    for (int i = 0; i < op_.count; ++i) {
      const Field& field = op_.fields[i];
      if (field.use == Use::kMode) mode_ = slots_[i].integer;
      if (field.use == Use::kPrecision) precision_ = slots_[i].integer;
      if (field.use == Use::kSize) size(field.dims[0].symbol) = slots_[i].integer;
      if (field.use == Use::kNeeds) {
        args_.list("needs", needs_.size(), size_t(field.count));
      }
      if (field.use == Use::kWindowNumbers) read_windows();
    }
  }

  void read_windows() {
    const std::vector<int64_t>& given = lists_.windows;
    args_.list("windows", given.size(), kWindowNumbers);
    std::memcpy(&windows_.emplace(), given.data(), sizeof(Windows));
    for (int d = 0; d < kPooledDimensions; ++d) {
      for (const int64_t* sizes : {windows_->in, windows_->out, windows_->kernel,
                                   windows_->stride, windows_->dilation}) {
        args_.within("windows", sizes[d], 1, INT32_MAX);
      }
    }
  }

  // How many positions there are in an image, or windows.
  static int64_t product(const int64_t (&sizes)[kPooledDimensions]) {
    return sizes[0] * sizes[1] * sizes[2];
  }

  // Of rows, and of their windows: the one that is known tells the other.
  void pair_windows() {
    const int64_t positions = product(windows_->in), windows = product(windows_->out);
    if (size(kRows) != kAny && size(kWindows) == kAny) {
      args_.divisor("positions", positions, size(kRows));
      size(kWindows) = size(kRows) / positions * windows;
    } else if (size(kWindows) != kAny && size(kRows) == kAny) {
      args_.divisor("windows", windows, size(kWindows));
      size(kRows) = size(kWindows) / windows * positions;
    }
    args_.within("rows", std::max(size(kRows), size(kWindows)), 0, INT32_MAX);
  }

  void read_images() {
    if (op_.first == Form::kOfSamples) {
      images_ = Images::of_samples(first_, size(kRows), size(kPositions));
      size(kChannels) = images_->channels();
      return;
    }
    const bool is_inner = op_.first == Form::kInner;
    images_ = is_inner ? Images::of_inner(first_, op_.parts) : Images::of_outer(first_, op_.parts);
    if (is_inner && op_.parts > 1) args_.divisor("parts", op_.parts, images_->width());
    size(kRows) = images_->rows();
    size(kChannels) = images_->channels();
  }

  // The shape of a tensor, with kAny for what it is to tell. Valid until the next one.
  Shape shape_of(const Field& field) {
    if (field.form == Form::kInner) return images_->inner();
    if (field.form == Form::kOuter) return images_->outer();
    for (int i = 0; i < field.count; ++i) {
      const Dim& dim = field.dims[i];
      const bool is_known = dim.symbol != Symbol::kNumber && size(dim.symbol) != kAny;
      shape_[i] = is_known && dim.number == kAny ? dim.factor * size(dim.symbol) : dim.number;
    }
    return Shape(shape_, size_t(field.count));
  }

  // Whether a tensor begins where the widest access to memory may.
  static bool begins_with_vector(const Tensor& tensor) {
    return reinterpret_cast<uintptr_t>(read(tensor)) % kVectorBytes == 0;
  }

  void check(int index) {
    const Field& field = op_.fields[index];
    Slot& slot = slots_[index];
    const OptionalTensor& came = slot.given;
    if (field.use == Use::kOperand) {
      (operands_.x ? operands_.weight : operands_.x) = &came;
      (operands_.weight ? weight_name_ : x_name_) = field.name;
    }
    if (field.use == Use::kPieces) {
      (operands_.x_pieces ? operands_.weight_pieces : operands_.x_pieces) = &came;
      return;
    }
    if (!came || (field.use == Use::kOperand && field.optional)) return;
    const ScalarType dtype = dtypes_[field.role];
    const Shape shape = shape_of(field);
    if (field.use == Use::kUpdate) {
      args_.buffer(field.name, *came, dtype, shape);
    } else if (field.form == Form::kOuter) {
      slot.keep(op_.read_outer(args_, field.name, *came, dtype, shape));
    } else {
      args_.matrix(field.name, *came, dtype, shape);
      if (field.use != Use::kOperand && !came->is_contiguous()) {
        slot.keep(contiguous(*came));
      } else if (field.use != Use::kOperand && op_.by_rows && !begins_with_vector(*came)) {
        slot.keep(copied(*came, dtype));  // else kernels would have another order of sums
      }
    }
    if (!slot.tensor) slot.tensor = &*came;
    if (field.use == Use::kBias) bias_ = index;
    learn_sizes(field, *came);
  }

  void learn_sizes(const Field& field, const Tensor& tensor) {
    for (int i = 0; i < field.count; ++i) {
      const Dim& dim = field.dims[i];
      if (dim.symbol == Symbol::kNumber || size(dim.symbol) != kAny) continue;
      if (dim.factor > 1) args_.divisor("parts", dim.factor, tensor.size(i));
      size(dim.symbol) = tensor.size(i) / dim.factor;
      if (windows_ && i == 0) pair_windows();
    }
    if (size(kRows) != kAny && size(kChannels) != kAny) check_numbers();
  }

  // The sizes that came as numbers: each divides the one that it is a part of.
  void check_numbers() {
    if (has_checked_) return;
    has_checked_ = true;
    for (int i = 0; i < op_.count; ++i) {
      const Field& field = op_.fields[i];
      const Symbol symbol = field.dims[0].symbol;
      const bool are_rows = symbol == kPositions && size(symbol) == 0;  // no image has any
      if (field.use != Use::kSize || symbol == kChannels || are_rows) continue;
      args_.divisor(field.name.substr(1), size(symbol),
                    size(symbol == kGroups ? kChannels : kRows));
    }
  }

  void make(int index, const Products& products, bool in_epilogue, Call& call) {
    const Field& field = op_.fields[index];
    Slot& slot = slots_[index];
    const ScalarType dtype = dtypes_[field.role];
    if (field.use == Use::kProduct || field.use == Use::kHiddenProduct) {
      product_ = index;
      const bool adds_bias = bias_ >= 0 && is_narrow(dtypes_[kActivation]);
      slot.keep(in_epilogue
                    ? glue::empty(first_, ScalarType::Float, {size(kRows), size(kChannels)})
                    : products.forward(operands_, adds_bias ? slots_[bias_].tensor : nullptr));
    } else if (field.use == Use::kResult && field.part >= 0) {
      if (!gathered_) {
        gathered_ = op_.gathered(first_, dtypes_[kAccumulator], size(kChannels), size(kRows));
      }
    } else if (chunk_ && field.use == Use::kProductGradient) {
      if (is_wanted(field)) slot.keep(*slots_[product_].tensor);
    } else if (field.use == Use::kProductGradient && is_made(field) && may_overwrite()) {
      slot.keep(*slots_[index_of(op_.overwritten)].tensor);
      has_made_ = true;
    } else if (field.use == Use::kResult || is_made(field)) {
      slot.keep(glue::empty(first_, dtype, shape_of(field)));
      has_made_ = true;
    }
    if (field.of_samples) {
      const int64_t rows = size(field.dims[0].symbol);
      if (call.samples == 0) call.samples = rows;
      args_.within(name_of(field.dims[0].symbol), rows, call.samples, call.samples);
    }
  }

  // Whether kernels may write over the tensor that the op overwrites. Where rows and groups do not
  // begin with a vector, a thread's vector has elements of others, who may have stored theirs.
  bool may_overwrite() const {
    if (op_.overwritten.empty()) return false;
    for (int i = 0; i < op_.count; ++i) {
      const Tensor* tensor = op_.fields[i].offset < 0 ? nullptr : slots_[i].tensor;
      if (tensor && !begins_with_vector(*tensor)) return false;
    }
    const int64_t groups = size(kGroups) == kAny ? 1 : size(kGroups);
    return size(kChannels) % (kVectorBytes / 2 * groups) == 0;
  }
  bool is_wanted(const Field& field) const {
    if (field.use == Use::kGradient) return needs_[field.need];
    return field.use == Use::kProductGradient && (needs_[0] || needs_[1]);
  }
  // Whether memory is needed for a gradient: it is wanted, and no other tensor has its values.
  bool is_made(const Field& field) const {
    if (!is_wanted(field)) return false;
    if (field.same.empty()) return true;
    const Field& same = op_.fields[index_of(field.same)];
    return dtypes_[same.role] != dtypes_[field.role] || !(is_argument(same.use) || is_wanted(same));
  }
  int index_of(std::string_view name) const {
    int index = 0;
    while (op_.fields[index].name != name) ++index;
    return index;
  }

  // What the caller gives a size as.
  std::string_view name_of(Symbol size) const {
    int index = 0;
    while (op_.fields[index].use != Use::kSize || op_.fields[index].dims[0].symbol != size) ++index;
    return op_.fields[index].name.substr(1);
  }

  // Writes a field's member of the launcher's arguments.
  void pass(int index) {
    const Field& field = op_.fields[index];
    if (field.offset < 0) return;
    const Slot& slot = slots_[index];
    const bool is_read = field.use < Use::kUpdate || field.use == Use::kProduct ||
                         field.use == Use::kHiddenProduct;
    if (field.use == Use::kConstant) {
      set(field, slot.number);
    } else if (field.use == Use::kSize) {
      set(field, slot.integer);
    } else if (field.part >= 0) {
      set(field, part_of(*gathered_, field.part));
    } else if (slot.tensor && !(field.use == Use::kBias && is_narrow(dtypes_[kActivation]))) {
      is_read ? set(field, read(*slot.tensor)) : set(field, write(*slot.tensor));
    }
  }
  template <class Member>
  void set(const Field& field, Member value) {
    std::memcpy(reinterpret_cast<char*>(arguments_) + field.offset, &value, sizeof value);
  }
  // Where values number `index * channels` and the following ones are, of float or double.
  void* part_of(const Tensor& tensor, int64_t index) const {
    const int64_t bytes = tensor.scalar_type() == ScalarType::Double ? 8 : 4;
    return static_cast<char*>(write(tensor)) + index * size(kChannels) * bytes;
  }

  std::vector<Tensor> results(const Products& products) {
    std::vector<Tensor> found;
    found.reserve(size_t(op_.count));
    if (gathered_) found.push_back(*gathered_);
    for (int i = 0; i < op_.count; ++i) {
      const Field& field = op_.fields[i];
      OptionalTensor& made = slots_[i].own;
      if (field.use == Use::kProductGradient) {
        if (is_wanted(field)) add_operand_gradients(products, i, found);
      } else if (is_argument(field.use) || field.use == Use::kHiddenProduct || !made) {
        continue;
      } else if (field.sum.sum) {
        const RowSum& how = field.sum;
        found.push_back(how.sum(*made, dtypes_[how.role], size(how.rows), how.again));
      } else {
        found.push_back(std::move(*made));
      }
    }
    return found;
  }

  void add_operand_gradients(const Products& products, int index, std::vector<Tensor>& to) {
    Slot& slot = slots_[index];
    if (!slot.tensor) slot.keep(*slots_[index_of(op_.fields[index].same)].tensor);
    release_read();
    const Tensor& dz = *slot.tensor;
    if (needs_[0]) {
      args_.required(weight_name_, *operands_.weight);
      to.push_back(products.input_gradient(dz, operands_));
    }
    if (needs_[1]) {
      args_.required(x_name_, *operands_.x);
      if (chunk_) {
        chunk_->add_weight_gradient(products, dz, operands_);
      } else {
        to.push_back(products.weight_gradient(dz, operands_));
      }
    }
  }

  // Lets go of what kernels have read, `first_` among it: where the call is the last to hold it,
  // its memory serves the products.
  void release_read() {
    for (int i = 0; i < op_.count; ++i) {
      if (op_.fields[i].use == Use::kRead) slots_[i] = Slot();
    }
  }

  const Op& op_;
  Slot* const slots_;
  const Lists& lists_;
  const std::vector<bool>& needs_;
  uint64_t* const arguments_;
  RowChunk* const chunk_;
  const Tensor& first_;
  const Arguments args_;
  Dtypes dtypes_;
  int64_t sizes_[kMostSymbols];
  int64_t shape_[kMostDims];
  std::optional<Images> images_;
  std::optional<Windows> windows_;
  int64_t mode_ = 0, precision_ = 0;
  bool has_checked_ = false, has_made_ = false;
  Operands operands_{};
  std::string_view x_name_, weight_name_;
  int bias_ = -1, product_ = -1;
  OptionalTensor gathered_;
};

}}  // namespace fusegen::glue
