// Where the kernels run: on the device of the tensors, in the order of its current stream.
#pragma once

#include <torch/extension.h>

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <sstream>
#include <stdexcept>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

constexpr auto kDevice = at::kCUDA;

// While it lives, the tensor's device is current, autograd records nothing and autocast casts
// nothing: that has been seen to. `stream` is what the launchers take.
//
// FUSEGEN_PLANNED_SHARED_BYTES is what a block of the planned kernels may take of shared memory.
// Raises RuntimeError for a GPU that has less.
class Launch {
 public:
  explicit Launch(const at::Tensor& tensor)
      : guard_(tensor.device()), no_autocast_(c10::DispatchKey::AutocastCUDA) {
    const int device = tensor.get_device();
    int bytes = 0;
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (bytes < FUSEGEN_PLANNED_SHARED_BYTES) {
      std::ostringstream message;
      message << "the kernels were planned for GPUs whose blocks have "
              << FUSEGEN_PLANNED_SHARED_BYTES << " bytes of shared memory, cuda:" << device
              << " has " << bytes
              << ": export the spec again with this GPU among its targets";
      throw std::runtime_error(message.str());
    }
    stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
  }
  void* stream = nullptr;

 private:
  c10::cuda::CUDAGuard guard_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

}}  // namespace fusegen::glue
