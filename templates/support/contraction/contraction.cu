// Products of float32 matrices on tensor cores of 16 bits; contraction.h says how.
#include "contraction.h"

#include "recheck.cuh"
#include "split.cuh"
#include "tensor_cores.cuh"

namespace {
using fusegen::Pieces;
using fusegen::PiecesLayout;
using fusegen::Product;
using fusegen::ProductKind;
using fusegen::SplitProduct;

// The layouts of the pieces of both operands.
struct Layouts {
  PiecesLayout left, right;
};

Layouts layouts_of(const SplitProduct& p) {
  switch (p.kind) {
    case ProductKind::kForward:
      return {{p.rows, p.in_features, false}, {p.channels, p.in_features, false}};
    case ProductKind::kInputGradient:
      return {{p.rows, p.channels, false}, {p.channels, p.in_features, false}};
    default:
      return {{p.rows, p.channels, true}, {p.rows, p.in_features, false}};
  }
}

Product product_of(const SplitProduct& p, const Pieces& left, const Pieces& right) {
  Product product{};
  product.left = p.left;
  product.right = p.right;
  product.left_largest = left.largest;
  product.left_lost = left.lost;
  product.left_lost_in_all = left.lost_in_all;
  product.right_lost_in_all = right.lost_in_all;
  product.result = p.result;
  switch (p.kind) {
    case ProductKind::kForward:
      product.rows = p.rows, product.columns = p.channels, product.sum = p.in_features;
      product.left_row = product.right_row = p.in_features;
      product.left_sum = product.right_sum = 1;
      product.right_largest = right.largest;
      product.right_lost = right.lost;
      break;
    case ProductKind::kInputGradient:
      product.rows = p.rows, product.columns = p.in_features, product.sum = p.channels;
      product.left_row = p.channels, product.left_sum = 1;
      product.right_row = 1, product.right_sum = p.in_features;
      break;
    default:
      product.rows = p.channels, product.columns = p.in_features, product.sum = p.rows;
      product.left_row = 1, product.left_sum = p.channels;
      product.right_row = 1, product.right_sum = p.in_features;
  }
  return product;
}

cudaStream_t stream_of(const SplitProduct& p) { return static_cast<cudaStream_t>(p.stream); }

}  // namespace

extern "C" {
int fusegen_split(
    const float* values, const PiecesLayout* layout, const void* folded,
    const PiecesLayout* folded_layout, void* pieces, void* stream) {
  Pieces others{};
  if (folded != nullptr) others = fusegen::pieces_of(folded, *folded_layout);
  return fusegen::launch_split(values, *layout, folded == nullptr ? nullptr : &others,
                               fusegen::pieces_of(pieces, *layout),
                               static_cast<cudaStream_t>(stream));
}

int fusegen_split_has_kernel() { return fusegen::has_tensor_core_kernel(); }

int fusegen_split_product(const SplitProduct* p) {
  const Layouts layouts = layouts_of(*p);
  const Pieces left = fusegen::pieces_of(p->left_pieces, layouts.left);
  const Pieces right = fusegen::pieces_of(p->right_pieces, layouts.right);
  const Product product = product_of(*p, left, right);
  const cudaError_t error =
      fusegen::launch_tensor_cores(p->kind, product, left, right, stream_of(*p));
  return error != cudaSuccess ? error : fusegen::launch_recheck(product, stream_of(*p));
}

int fusegen_split_finish(const SplitProduct* p, const float* cross) {
  const Layouts layouts = layouts_of(*p);
  const Pieces left = fusegen::pieces_of(p->left_pieces, layouts.left);
  const Pieces right = fusegen::pieces_of(p->right_pieces, layouts.right);
  const Product product = product_of(*p, left, right);
  const cudaError_t error = fusegen::launch_combine(product, cross, stream_of(*p));
  return error != cudaSuccess ? error : fusegen::launch_recheck(product, stream_of(*p));
}

}
