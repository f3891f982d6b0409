// PLACEHOLDER: host loops for the emulator.
#include "contraction.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstring>

using fusegen::PiecesLayout;
using fusegen::ProductKind;
using fusegen::SplitProduct;

namespace {
struct Pieces {
  PiecesLayout l;
  char* base;
  __half* high() { return (__half*)base; }
  __half* low() { return (__half*)base + l.plane(); }
  int* exponents() { return (int*)(base + 4 * l.plane()); }
  int* flags() { return exponents() + l.scales(); }
};
}  // namespace

extern "C" int fusegen_split(const float* values, PiecesLayout layout, const void* folded,
                             PiecesLayout folded_layout, void* pieces, void*) {
  Pieces p{layout, (char*)pieces}, f{folded_layout, (char*)folded};
  std::memset(pieces, 0, layout.halves() * 2);
  auto value = [&](int64_t r, int64_t c) {
    float v = values[r * layout.columns + c];
    return folded ? std::ldexp(v, -f.exponents()[layout.by_columns ? r : c]) : v;
  };
  for (int64_t s = 0; s < layout.scales(); ++s) {
    float most = 0;
    int64_t n = layout.by_columns ? layout.rows : layout.columns;
    for (int64_t i = 0; i < n; ++i) {
      float v = std::fabs(layout.by_columns ? value(i, s) : value(s, i));
      if (std::isfinite(v) && v > most) most = v;
    }
    int e = 0;
    if (most > 0) { std::frexp(most, &e); e = 15 - e; }
    p.exponents()[s] = e;
    for (int64_t i = 0; i < n; ++i) {
      int64_t r = layout.by_columns ? i : s, c = layout.by_columns ? s : i;
      float v = std::ldexp(value(r, c), e);
      __half h = __float2half_rn(v);
      p.high()[r * layout.stride() + c] = h;
      p.low()[r * layout.stride() + c] = __float2half_rn((v - __half2float(h)) * 2048.0f);
    }
  }
  return 0;
}
extern "C" int fusegen_split_has_kernel() { return 0; }
extern "C" int fusegen_split_product(const SplitProduct*) { return 1; }
extern "C" int fusegen_split_finish(const SplitProduct* p, const float* cross) {
  int64_t m = p->rows, n = p->channels;
  Pieces left, right;
  if (p->kind == ProductKind::kForward) {
    left = {{p->rows, p->in_features, false}, (char*)p->left_pieces};
    right = {{p->channels, p->in_features, false}, (char*)p->right_pieces};
  } else if (p->kind == ProductKind::kInputGradient) {
    n = p->in_features;
    left = {{p->rows, p->channels, false}, (char*)p->left_pieces};
  } else {
    m = p->channels; n = p->in_features;
    left = {{p->rows, p->channels, true}, (char*)p->left_pieces};
  }
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) {
      int e = left.exponents()[r] + (p->kind == ProductKind::kForward ? right.exponents()[c] : 0);
      float* y = p->result + r * n + c;
      *y = float(std::ldexp(double(*y) + double(cross[r * n + c]) / 2048, -e));
    }
  return 0;
}
