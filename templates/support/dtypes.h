// Element types by name: launchers.h has the table of a package's dtype configurations, from which
// kernels.cu makes types, and bindings.cpp PyTorch's dtypes.
#pragma once

namespace fusegen {

enum class Dtype { kFloat32, kBFloat16, kFloat16, kFloat64 };

}  // namespace fusegen
