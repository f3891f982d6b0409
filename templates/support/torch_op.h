// The table of an op: what it takes, what it makes, and which member of its launcher's arguments
// each of these is. torch_call.h makes calls of it; torch_table.h has the words that tables use.
//
// A table has the arguments of the op in the order of its schema, then what the op makes in the
// order in which it returns that. A member is written once: its name without its ending is the
// name of the tensor or number.
#pragma once

#include "call.h"
#include "dtypes.h"
#include "torch_glue.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fusegen {
struct SplitProduct;
}

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

constexpr ScalarType to_torch(Dtype dtype) {
  return dtype == Dtype::kFloat32  ? ScalarType::Float
      : dtype == Dtype::kBFloat16 ? ScalarType::BFloat16
      : dtype == Dtype::kFloat16  ? ScalarType::Half
                                  : ScalarType::Double;
}

// The dtype of what kernels add up for activations of a dtype.
constexpr ScalarType accumulator(Dtype activation) {
  return activation == Dtype::kFloat64 ? ScalarType::Double : ScalarType::Float;
}

// A dtype by its role: a place in the row of a dtype mode, or one that is the same in all modes.
// The roles of further inputs and results come behind kParameter.
enum Role : int {
  kByte = -4, kBool = -3, kLong = -2, kAccumulator = -1, kActivation, kOutput, kParameter
};
constexpr int kFirstOwnRole = kParameter + 1;

// The dtypes of a call, by role.
class Dtypes {
 public:
  explicit Dtypes(const Dtype* row) : row_(row) {}
  ScalarType operator[](int role) const {
    if (role >= 0) return to_torch(row_[role]);
    if (role == kByte) return ScalarType::Byte;
    if (role == kBool) return ScalarType::Bool;
    if (role == kLong) return ScalarType::Long;
    return accumulator(row_[kActivation]);
  }

 private:
  const Dtype* row_;
};

// The dtype modes of a package, as launchers.h has them: a row of dtypes for each.
struct Modes {
  template <size_t N, size_t Roles>
  constexpr explicit Modes(const Dtype (&table)[N][Roles])
      : rows(table[0]), count(N), roles(Roles) {}
  const Dtype* rows;
  int64_t count, roles;
};

// The sizes of a call. kOwnRows and what follows: the rows of inputs that have fewer than others.
enum class Symbol : int32_t {
  kNumber, kRows, kChannels, kGroups, kSamples, kPositions, kInFeatures, kSampleRows, kWindows,
  kOwnRows
};
constexpr Symbol kRows = Symbol::kRows, kChannels = Symbol::kChannels, kGroups = Symbol::kGroups;
constexpr Symbol kSamples = Symbol::kSamples;
constexpr Symbol kPositions = Symbol::kPositions, kWindows = Symbol::kWindows;
constexpr Symbol kInFeatures = Symbol::kInFeatures, kSampleRows = Symbol::kSampleRows;
constexpr int kMostOwnRows = 32;
constexpr int kMostSymbols = int(Symbol::kOwnRows) + kMostOwnRows;
constexpr Symbol own_rows(int index) {
  return index < kMostOwnRows ? Symbol(int(Symbol::kOwnRows) + index)
                              : throw "too many inputs with fewer rows than others";
}

// A size of a tensor: a number, a symbol, or so many times that. number: what the spec says it is.
struct Dim {
  constexpr Dim(int number = 0) : number(number) {}
  constexpr Dim(Symbol symbol, int32_t factor = 1) : symbol(symbol), factor(factor) {}
  Symbol symbol = Symbol::kNumber;
  int32_t factor = 1;
  int64_t number = kAny;
};
constexpr int kMostDims = 8;
constexpr Dim known(Dim dim, int64_t number) {
  dim.number = number;
  return dim;
}
constexpr Dim operator*(int factor, Symbol symbol) { return Dim(symbol, factor); }

// The forms of tensors of images: see torch_images.h. kOfSamples: that of a first argument [batch,
// channels], beside which numbers say what the others have.
enum class Form { kRows, kInner, kOuter, kOfSamples };
constexpr Form kInner = Form::kInner, kOuter = Form::kOuter, kOfSamples = Form::kOfSamples;

// What an op does with a field. First come the arguments.
enum class Use {
  kOperand,  // of the product: any strides, the library takes it or copies it
  kRead,     // by kernels: as it is when contiguous, else through a contiguous copy
  kBias,     // likewise; in 16 bits the library adds it to the product, and kernels get null
  kUpdate,   // a buffer that kernels write: contiguous, never copied
  kMode,
  kSize,
  kConstant,
  kPrecision,
  kPieces,
  kChunk,          // how many rows of the product are made at a time
  kWindowNumbers,  // how positions are pooled: the numbers of Windows in call.h
  kNeeds,
  kResult,
  kProduct,        // of the operands
  kHiddenProduct,  // one that the op does not return
  kGradient,
  kProductGradient,
};
constexpr bool is_tensor(Use use) { return use <= Use::kUpdate || use == Use::kPieces; }
constexpr bool is_argument(Use use) { return use <= Use::kNeeds; }

// A gradient with fewer rows than kernels write, which the op sums: see sum_of_rows().
struct RowSum {
  Tensor (*sum)(const Tensor& full, ScalarType dtype, int64_t own, bool again) = nullptr;
  int role = 0;
  Symbol rows = Symbol::kNumber;
  bool again = false;
};

struct Field {
  Use use;
  std::string_view name;
  int64_t offset = -1;  // in the launcher's arguments; -1: kernels do not have it
  int role = 0;
  Form form = Form::kRows;
  int count = 0;  // of dims; of kNeeds, of flags
  Dim dims[kMostDims] = {};
  bool optional = false;
  int need = -1;            // of a gradient: its place in `needs`
  std::string_view same{};  // of a gradient: the tensor that takes its place where dtypes are one
  bool of_samples = false;  // of a gradient: kernels sum it over samples
  RowSum sum{};
  int part = -1;            // of a result over ranks: its place in the tensor that ranks gather

  constexpr Field as_optional() const {
    Field field = *this;
    field.optional = true;
    return field;
  }
  constexpr Field sum_of_samples() const {
    Field field = *this;
    field.of_samples = true;
    return field;
  }
  constexpr Field same_as(std::string_view other) const {
    Field field = *this;
    field.same = other;
    return field;
  }
  constexpr Field summed(RowSum how) const {
    Field field = *this;
    field.sum = how;
    return field;
  }
};

// What an op returns: a tensor for each result; those gradients that are wanted; or one tensor.
enum class Returns { kTuple, kList, kTensor };

using ErrorText = const char* (*)(int);
using Launcher = int (*)(const Call*, const void* arguments);
using ProductLauncher = int (*)(const Call*, const void* arguments, const SplitProduct*);
using Explain = int64_t (*)(const Call*, char* text, int64_t size);

class Arguments;
class Products;

// result = a b + bias, or result + a b; torch_row_invariant.h has one.
using Multiply = void (*)(
    const Tensor& result, const Tensor& a, const Tensor& b, const Tensor* bias, bool add);

struct Op {
  const char* name;    // "fusegen::", the package, the program
  const char* symbol;  // of the launcher
  const Field* fields;
  int count;
  const Modes* modes;
  ErrorText error_text;
  Returns returns;
  size_t arguments_bytes;
  Launcher launch;
  int64_t (*workspace)(const Call*);
  Explain explain;
  // Of images: the form of the first argument, the parts of inner ones, what reads outer ones.
  Form first = Form::kRows;
  int parts = 1;
  Tensor (*read_outer)(
      const Arguments&, std::string_view name, const Tensor&, ScalarType, Shape) = nullptr;
  // Products in several precisions: null where the library makes them all.
  std::unique_ptr<Products> (*products)(
      const Arguments&, int64_t precision, ScalarType, void* stream, ErrorText,
      Multiply by_rows) = nullptr;
  // Kernels that run in the epilogue of a product.
  int (*takes_product)(const Call*) = nullptr;
  ProductLauncher launch_product = nullptr;
  Explain explain_product = nullptr;
  // In chunks of rows: makes the pieces of an operand; null where the library makes all products.
  OptionalTensor (*split)(const Tensor&, int64_t precision, ErrorText) = nullptr;
  // Of row-invariant ops: makes the products whose results have the rows of the batch.
  Multiply by_rows = nullptr;
  // The argument that the op overwrites with the product's gradient; empty: none.
  std::string_view overwritten{};
  // Over ranks: makes the first result, parts of which kernels write.
  Tensor (*gathered)(const Tensor& like, ScalarType, int64_t channels, int64_t rows) = nullptr;

  constexpr Op of_images(Form form, int number, decltype(read_outer) reader) const {
    Op op = *this;
    op.first = form, op.parts = number, op.read_outer = reader;
    return op;
  }
  constexpr Op with_products(decltype(products) make) const {
    Op op = *this;
    op.products = make;
    return op;
  }
  constexpr Op in_epilogue(decltype(takes_product) takes, ProductLauncher launcher,
                           Explain explain_it) const {
    Op op = *this;
    op.takes_product = takes, op.launch_product = launcher, op.explain_product = explain_it;
    return op;
  }
  constexpr Op split_by(decltype(split) make) const {
    Op op = *this;
    op.split = make;
    return op;
  }
  constexpr Op row_invariant(Multiply multiply) const {
    Op op = *this;
    op.by_rows = multiply;
    return op;
  }
  // An op of another name that may do so.
  constexpr Op in_place(const char* its_name, std::string_view argument) const {
    Op op = *this;
    op.name = its_name, op.overwritten = argument;
    return op;
  }
  constexpr Op over_ranks(decltype(gathered) make) const {
    Op op = *this;
    op.gathered = make;
    return op;
  }
};

// The arguments and results of an op as its schema has them. marks_written: whether what it writes
// of them is said to be.
inline std::string schema_text(const Op& op, bool marks_written) {
  std::string arguments, results;
  int written = 0;
  for (int i = 0; i < op.count; ++i) {
    const Field& field = op.fields[i];
    const std::string name(field.name);
    if (!is_argument(field.use)) {
      if (field.use == Use::kHiddenProduct) continue;
      results += (results.empty() ? "Tensor " : ", Tensor ") + name;
      continue;
    }
    std::string type = field.use == Use::kConstant ? "float" : "int";
    if (is_tensor(field.use)) type = "Tensor";
    if ((field.use == Use::kUpdate || field.name == op.overwritten) && marks_written) {
      type += "(written_" + std::to_string(written++) + "!)";
    }
    if (field.optional) type += "?";
    if (field.use == Use::kNeeds) type = "bool[]";
    if (field.use == Use::kWindowNumbers) type = "int[]";
    arguments += (arguments.empty() ? "" : ", ") + type + " " + name;
  }
  if (op.returns == Returns::kTuple) return "(" + arguments + ") -> (" + results + ")";
  return "(" + arguments + ") -> " + (op.returns == Returns::kList ? "Tensor[]" : "Tensor");
}

}}  // namespace fusegen::glue
