// Autograd for the ops of all packages below one output directory. Each package does the same with
// an autograd.Function in Python; here a training step at small shapes takes the host a quarter to
// two fifths less.
//
// This is not part of torch's stable ABI. So `fusegen build` compiles it for one version of torch,
// packages load it in that version only, and where there is none the Function serves.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {
using c10::IValue;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using torch::jit::Stack;

// Up to torch 2.12 a shared_ptr, from then on an intrusive_ptr.
using NodePointer = decltype(torch::autograd::Edge::function);

// Where an argument of the backward op comes from: an argument or a result of the forward op.
struct Source {
  bool is_result;
  size_t index;
  bool is_tensor;
  // An operand of the matrix product, and its pieces, serve the gradient of the other one alone:
  // the forward op's argument that has this gradient, or -1.
  int64_t serves;
};

// A forward op, its backward op, and what leads from one to the other.
struct Pair {
  c10::OperatorHandle forward, backward;
  size_t differentiable;        // so many arguments of the forward op, the first; as many `needs`
  size_t given;                 // so many of its results, the first, that the module returns
  std::vector<int64_t> same;    // of each gradient the one before it that it equals, plus `given`,
                                // or the result whose gradient it is; -1: none
  std::string refusal;          // of a backward pass that is to be differentiated
  std::vector<Source> sources;  // the backward op's arguments between the gradients and `needs`
  std::vector<size_t> mutated;  // the forward op's arguments that it writes
  // The backward op that overwrites one of its arguments, and the place of that among the sources.
  std::optional<c10::OperatorHandle> in_place;
  size_t overwritten;

  bool overwrites(size_t source) const { return in_place && source == overwritten; }
};

template <class T>
auto pointer_to(T* node) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<Node>>) {
    return node->shared_from_this();
  } else {
    return node->getptr();
  }
}

// Whether a call with these tensors goes to kernels as it is: no tracer, mode or subclass sees it.
bool are_plain(c10::ArrayRef<IValue> values) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  c10::DispatchKeySet keys = local.included_;
  for (const IValue& value : values) {
    if (value.isTensor()) keys = keys | value.toTensor().key_set();
  }
  keys = keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView -
      c10::autocast_dispatch_keyset - c10::DispatchKeySet(c10::DispatchKey::BackendSelect);
  return c10::toFunctionalityKey(keys.highestPriorityTypeId()) == c10::DispatchKey::Dense;
}

// The node of one forward pass.
struct Backward final : Node {
  explicit Backward(const Pair& ops) : ops(ops) {}

  const Pair& ops;
  std::vector<SavedVariable> tensors;  // in the order of the sources, as are the scalars
  std::vector<IValue> scalars;
  std::vector<at::ScalarType> dtypes;  // of what is differentiated
  bool released = false;

  std::string name() const override { return ops.backward.operator_name().name; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& tensor : tensors) tensor.reset_data();
    released = true;
  }

  variable_list apply(variable_list&& grads) override {
    TORCH_CHECK(!at::GradMode::is_enabled(), ops.refusal);
    const auto is_defined = [](const Variable& grad) { return grad.defined(); };
    if (std::none_of(grads.begin(), grads.end(), is_defined)) {
      return variable_list(ops.differentiable);
    }
    for (size_t i = 0; i < ops.given; ++i) {
      // What nothing was computed from has a gradient of zeros.
      if (!grads[i].defined()) grads[i] = input_metadata(i).zeros_like();
    }
    // By the place of the gradient; those of results are asked for where they are passed on.
    std::vector<bool> asked(ops.given + ops.differentiable);
    std::vector<size_t> owners(ops.differentiable);
    for (size_t i = 0; i < ops.differentiable; ++i) {
      owners[i] = owner_of(i, grads);
      if (task_should_compute_output(i)) asked[owners[i]] = true;
    }
    grads.resize(ops.given);
    make(asked, grads);
    variable_list wanted(ops.differentiable);
    for (size_t i = 0; i < ops.differentiable; ++i) {
      if (task_should_compute_output(i)) wanted[i] = grads[owners[i]];
    }
    return wanted;
  }

 private:
  // The place of what is gradient i among the gradients of results and those behind them.
  size_t owner_of(size_t i, const variable_list& grads) const {
    const int64_t same = ops.same[i];
    if (same < 0) return i + ops.given;
    const auto dtype = size_t(same) < ops.given ? grads[same].scalar_type()
                                                : dtypes[same - ops.given];
    return dtype == dtypes[i] ? size_t(same) : i + ops.given;
  }

  // Puts the gradients that the op is asked for behind those of the results, each in its place.
  // What nobody needs any more goes with the call, which lets go of it before it makes products.
  void make(const std::vector<bool>& asked, variable_list& grads) {
    grads.resize(asked.size());
    if (std::find(asked.begin() + ops.given, asked.end(), true) == asked.end()) return;
    Stack stack;
    stack.reserve(ops.sources.size() + ops.given + 1);
    for (size_t i = 0; i < ops.given; ++i) {
      asked[i] ? stack.emplace_back(grads[i]) : stack.emplace_back(std::move(grads[i]));
    }
    const bool is_owner = push_saved(stack);
    c10::List<bool> needs;
    needs.reserve(ops.differentiable);
    for (size_t i = ops.given; i < asked.size(); ++i) needs.push_back(asked[i]);
    stack.emplace_back(std::move(needs));
    (is_owner && are_plain(stack) ? *ops.in_place : ops.backward).callBoxed(&stack);
    std::vector<at::Tensor> found = stack.back().toTensorVector();
    auto next = found.begin();
    for (size_t i = ops.given; i < asked.size(); ++i) {
      if (asked[i]) grads[i] = std::move(*next++);
    }
  }

  // Whether what may be overwritten is the stack's alone. Two threads may run a retained graph at a
  // time.
  bool push_saved(Stack& stack) {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!released, torch::autograd::ERR_BACKWARD_TWICE);
    bool is_owner = false;
    auto tensor = tensors.begin();
    auto scalar = scalars.begin();
    for (const Source& source : ops.sources) {
      if (!source.is_tensor) {
        stack.push_back(*scalar++);
        continue;
      }
      // What comes from a hook is the hook's.
      is_owner |= ops.overwrites(&source - ops.sources.data()) && !tensor->has_hooks();
      Variable value = (tensor++)->unpack(pointer_to(this));
      stack.push_back(value.defined() ? IValue(std::move(value)) : IValue());
    }
    // Autograd would do it behind this call.
    if (torch::autograd::get_current_graph_task_keep_graph()) return false;
    for (SavedVariable& each : tensors) each.reset_data();
    if (!is_owner) return false;
    const at::Tensor& value = stack[ops.given + ops.overwritten].toTensor();
    return value.use_count() == 1 && value.storage().use_count() == 1;
  }
};

template <class Pointer, class T>
Pointer make_node(const Pair& ops, T*& node) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    const auto destroy = [](auto* each) { deleteNode(each); };  // torch::autograd's, if it has one
    node = new T(ops);
    return Pointer(static_cast<Node*>(node), destroy);
  } else {
    auto made = c10::make_intrusive<T>(ops);
    node = made.get();
    return made;
  }
}

bool requires_grad(const IValue& value) {
  return value.isTensor() && value.toTensor().requires_grad();
}

// Tells autograd that a call writes into these arguments: what was saved of them before is noticed.
void bump_versions(const Pair& ops, c10::ArrayRef<IValue> arguments) {
  for (const size_t index : ops.mutated) {
    if (!arguments[index].isTensor()) continue;
    at::TensorImpl* tensor = arguments[index].toTensor().unsafeGetTensorImpl();
    if (!tensor->is_inference()) tensor->bump_version();
  }
}

// The forward op at the ADInplaceOrView key, which calls in inference mode come to first.
class Versions final : public c10::OperatorKernel {
 public:
  explicit Versions(const Pair& ops) : ops_(ops) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet keys, Stack* stack) const {
    bump_versions(ops_, torch::jit::last(*stack, ops_.forward.schema().arguments().size()));
    const at::AutoDispatchBelowADInplaceOrView guard;
    ops_.forward.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }

 private:
  const Pair& ops_;
};

// The forward op at the Autograd key.
class Forward final : public c10::OperatorKernel {
 public:
  explicit Forward(const Pair& ops) : ops_(ops) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet keys, Stack* stack) const {
    const auto arguments = torch::jit::last(*stack, ops_.forward.schema().arguments().size());
    const auto inputs = arguments.slice(0, ops_.differentiable);
    for (const IValue& input : inputs) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          !input.isTensor() || !input.toTensor()._fw_grad(/*level=*/0).defined(),
          ops_.forward.operator_name().name, " has no jvp: forward mode is not supported");
    }
    const bool record = at::GradMode::is_enabled() &&
                        std::any_of(inputs.begin(), inputs.end(), requires_grad);
    if (!record) return run(keys, stack);

    Backward* node = nullptr;
    const NodePointer pointer = make_node<NodePointer>(ops_, node);
    torch::autograd::edge_list edges;
    for (const IValue& input : inputs) {
      edges.push_back(requires_grad(input) ? torch::autograd::impl::gradient_edge(input.toTensor())
                                           : torch::autograd::Edge());
    }
    node->set_next_edges(std::move(edges));
    for (const IValue& input : inputs) {
      node->dtypes.push_back(input.isTensor() ? input.toTensor().scalar_type()
                                              : at::ScalarType::Undefined);
    }
    // `run` takes the arguments off the stack.
    std::vector<IValue> saved;
    for (const Source& source : ops_.sources) {
      const bool useless = source.serves >= 0 && !requires_grad(inputs[source.serves]);
      saved.push_back(source.is_result || useless ? IValue() : arguments[source.index]);
    }
    run(keys, stack);

    const auto results = torch::jit::last(*stack, ops_.forward.schema().returns().size());
    for (size_t i = 0; i < ops_.given; ++i) {
      Variable y = results[i].toTensor();
      torch::autograd::set_history(y, pointer);
    }
    for (size_t i = 0; i < saved.size(); ++i) {
      const Source& source = ops_.sources[i];
      const IValue& value = source.is_result ? results[source.index] : saved[i];
      if (!source.is_tensor) {
        node->scalars.push_back(value);
      } else {
        Variable tensor = value.isTensor() ? value.toTensor() : Variable();
        // Callers hold the result for a while, and Python may for as long as it lives: an alias is
        // the node's alone.
        if (ops_.overwrites(i) && are_plain(value)) tensor = tensor.tensor_data();
        node->tensors.emplace_back(tensor, source.is_result && source.index < ops_.given);
      }
    }
  }

 private:
  void run(c10::DispatchKeySet keys, Stack* stack) const {
    bump_versions(ops_, torch::jit::last(*stack, ops_.forward.schema().arguments().size()));
    const at::AutoDispatchBelowADInplaceOrView guard;
    ops_.forward.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }

  const Pair& ops_;
};

template <class Arguments>
int64_t find(const Arguments& arguments, const std::string& name) {
  const auto has_name = [&](const c10::Argument& argument) { return argument.name() == name; };
  const auto found = std::find_if(arguments.begin(), arguments.end(), has_name);
  return found == arguments.end() ? -1 : found - arguments.begin();
}

// The gradient that an optional argument of both ops serves: the second operand's or the first's.
int64_t find_served(const std::string& name, int64_t argument) {
  if (argument == 0 || name == "_operand_pieces") return 1;
  return argument == 1 || name == "_weight_pieces" ? 0 : -1;
}

// Matches the backward op's arguments with what has their names in the forward op.
std::vector<Source> find_sources(const c10::FunctionSchema& forward,
                                 const c10::FunctionSchema& backward, size_t given) {
  std::vector<Source> sources;
  const auto& arguments = backward.arguments();
  for (size_t i = given; i + 1 < arguments.size(); ++i) {
    const int64_t argument = find(forward.arguments(), arguments[i].name());
    const int64_t result = find(forward.returns(), arguments[i].name());
    TORCH_CHECK(argument >= 0 || result >= 0, "nothing gives ", arguments[i].name());
    const c10::Type& type = *arguments[i].type();
    const bool optional = type.kind() == c10::TypeKind::OptionalType;
    const int64_t serves = optional ? find_served(arguments[i].name(), argument) : -1;
    TORCH_CHECK(!optional || serves >= 0, arguments[i].name(), " is no operand");
    const bool is_result = argument < 0;
    sources.push_back({is_result, size_t(is_result ? result : argument),
                       optional || type.kind() == c10::TypeKind::TensorType, serves});
  }
  return sources;
}

std::vector<size_t> find_mutated(const c10::FunctionSchema& schema) {
  std::vector<size_t> mutated;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) mutated.push_back(i);
  }
  return mutated;
}

// An op that does what the backward op of a pair does, and overwrites a result of the forward op
// that the module does not return.
void add_in_place(Pair& ops, const char* name) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  const std::vector<size_t> written = find_mutated(op.schema());
  TORCH_CHECK(written.size() == 1 && written[0] >= ops.given, name, " has to write one argument");
  const Source& source = ops.sources.at(written[0] - ops.given);
  TORCH_CHECK(source.is_result && source.index >= ops.given, name, " writes what others have");
  ops.in_place = op;
  ops.overwritten = written[0] - ops.given;
}

template <class Kernel>
torch::Library register_kernel(const Pair& ops, c10::DispatchKey key) {
  const std::string name = ops.forward.operator_name().name;
  const size_t end = name.find("::");
  torch::Library library(torch::Library::IMPL, name.substr(0, end), key, __FILE__, __LINE__);
  library.impl(name.substr(end + 2).c_str(),
               torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(ops)));
  return library;
}

void differentiate(const char* forward, const char* backward, const char* in_place,
                   size_t differentiable, size_t given, const int64_t* same, const char* refusal) {
  static std::mutex mutex;
  static std::deque<Pair> pairs;  // what is in it stays where it is
  static std::deque<torch::Library> libraries;
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto first = dispatcher.findSchemaOrThrow(forward, "");
  const auto second = dispatcher.findSchemaOrThrow(backward, "");
  const std::lock_guard<std::mutex> lock(mutex);
  // It has where its module is reloaded, or a package of the same sources was imported before.
  if (first.hasKernelForDispatchKey(c10::DispatchKey::Autograd)) return;
  Pair ops{first, second, differentiable, given,
           std::vector<int64_t>(same, same + differentiable), refusal,
           find_sources(first.schema(), second.schema(), given), find_mutated(first.schema())};
  if (in_place != nullptr) add_in_place(ops, in_place);
  pairs.push_back(std::move(ops));
  libraries.push_back(register_kernel<Forward>(pairs.back(), c10::DispatchKey::Autograd));
  if (!pairs.back().mutated.empty()) {
    libraries.push_back(register_kernel<Versions>(pairs.back(), c10::DispatchKey::ADInplaceOrView));
  }
}

}  // namespace

// The digest of this file as it was compiled, by the build.
extern "C" __attribute__((visibility("default"))) const char* fusegen_sources() {
  return FUSEGEN_SOURCES;
}

// Has `backward` differentiate `forward`, both registered ops as "namespace::name", by its first
// arguments, so many of them. in_place: an op that does what `backward` does and overwrites one of
// its arguments, or null: it serves where the graph is not retained and nobody else holds that.
// given: how many of its results, the first ones, have gradients. same:
// of each gradient the place of what it equals, among those of the results and, behind them, the
// gradients before it; -1 for none.
// refusal: the error's text where that is to be differentiated again.
// Null, or why it cannot, valid until the next call in this thread.
extern "C" __attribute__((visibility("default"))) const char* fusegen_differentiate(
    const char* forward, const char* backward, const char* in_place, size_t differentiable,
    size_t given, const int64_t* same, const char* refusal) {
  thread_local std::string reason;
  try {
    differentiate(forward, backward, in_place, differentiable, given, same, refusal);
    return nullptr;
  } catch (const std::exception& error) {
    reason = error.what();
    return reason.c_str();
  }
}
