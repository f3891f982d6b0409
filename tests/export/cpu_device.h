// In place of templates/standalone/torch_device.h: the emulated kernels run on the CPU.
#pragma once

#include <torch/extension.h>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

constexpr auto kDevice = at::kCPU;

class Launch {
 public:
  explicit Launch(const at::Tensor&) : no_autocast_(c10::DispatchKey::AutocastCPU) {}
  void* stream = nullptr;

 private:
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

}}  // namespace fusegen::glue
