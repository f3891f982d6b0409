// The copy of images by its own launcher, with two dtype configurations.
#include <cstdint>

#include "../support/kernels/entry.cuh"
#include "../support/kernels/image_copy.cuh"

namespace toy {
using namespace fusegen;

template <typename T_>
struct Dtypes {
  using T = T_;
};
using Modes = DtypeModes<Types<__nv_bfloat16>, Types<__half>>;

FUSEGEN_IMAGE_COPY_LAUNCHER(image_copy_of, Dtypes)

}  // namespace toy

extern "C" int image_copy(
    int mode, const void* from, void* to, int64_t images, int64_t rows, int64_t columns,
    int64_t from_bytes, int64_t to_bytes, int64_t to_rows, int exchanged) {
  const fusegen::Call call{mode, 0, 0};
  const fusegen::ImageCopy copy{from, to, images, rows, columns, to_rows, from_bytes, to_bytes,
                                exchanged != 0};
  return toy::image_copy_of(&call, &copy);
}
