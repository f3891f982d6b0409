// The op that multiplies a gradient by a number: kernels/scale.cuh.
#pragma once

#include "call.h"
#include "scale.h"
#include "torch_arguments.h"

#include <cstdint>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

inline void scale(
    int (*launcher)(const Call* call, const Scale* arguments),
    const char* (*error_text)(int), const Arguments& args, const Tensor& values,
    const Tensor& factor, bool keeps_zeros) {
  const ScalarType dtype = values.scalar_type();
  if (dtype != ScalarType::BFloat16 && dtype != ScalarType::Float) {
    fail("scale", "values: expected float32 or bfloat16, got ", dtype);
  }
  if (!values.is_contiguous()) fail("scale", "values: expected a contiguous tensor to write");
  const Tensor number = args.input("factor", factor, ScalarType::Float, {1});
  if (values.numel() == 0) return;
  const Launch launch(values);
  Call call{0, 1, 1};
  call.stream = launch.stream;
  const Scale arguments{
      write(values), int64_t(values.numel()), static_cast<const float*>(read(number)),
      dtype == ScalarType::Float ? Dtype::kFloat32 : Dtype::kBFloat16,
      keeps_zeros};
  check_launch("scale", launcher(&call, &arguments), error_text);
}

}}  // namespace fusegen::glue
