// The mean of losses by its own launcher, with three dtype configurations.
#include <cstdint>

#include "../support/kernels/entry.cuh"
#include "../support/kernels/mean_loss.cuh"

namespace toy {
using namespace fusegen;

template <typename Out_>
struct Dtypes {
  using Out = Out_;
};
using Modes = DtypeModes<Types<float>, Types<__nv_bfloat16>, Types<double>>;

FUSEGEN_MEAN_LOSS_LAUNCHER(mean_loss_of, Dtypes)

}  // namespace toy

extern "C" int mean_loss(
    int mode, const void* losses, const void* targets, const void* weights, int64_t rows,
    int64_t channels, int64_t ignored, void* mean, void* count) {
  const fusegen::Call call{mode, rows, 1};
  const fusegen::MeanLoss arguments{
      losses, static_cast<const int64_t*>(targets), weights, rows, channels, ignored, mean, count};
  return toy::mean_loss_of(&call, &arguments);
}
