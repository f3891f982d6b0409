// The op that takes the mean of the losses of rows: kernels/mean_loss.cuh.
#pragma once

#include "call.h"
#include "mean_loss.h"
#include "torch_arguments.h"

#include <cstdint>
#include <tuple>

namespace fusegen __attribute__((visibility("hidden"))) { namespace glue {

// The launcher of a package, and what tells its errors.
struct LossReducer {
  int (*launcher)(const Call* call, const MeanLoss* arguments);
  const char* (*error_text)(int);
};

// The mean, in the dtype of results, and how many rows count, or the weights of their targets.
inline std::tuple<Tensor, Tensor> mean_loss(
    const LossReducer& reducer, const Arguments& args, const Tensor& losses, const Tensor& targets,
    const OptionalTensor& weights, int64_t ignored, int64_t mode, const Modes& modes) {
  const Dtypes dtypes = args.mode(mode, modes);
  const ScalarType dtype = dtypes[kOutput];
  const Tensor given = args.input("losses", losses, dtype, {kAny});
  const int64_t rows = given.size(0);
  const Tensor wanted = args.input("targets", targets, ScalarType::Long, {rows});
  const OptionalTensor of_channels =
      args.input("weights", weights, dtypes[kAccumulator], {kAny});
  const Launch launch(losses);
  Call call{mode, rows, 1};
  call.stream = launch.stream;
  const Tensor mean = empty(losses, dtype, {}), count = empty(losses, dtypes[kAccumulator], {});
  const MeanLoss arguments{
      read(given), static_cast<const int64_t*>(read(wanted)),
      of_channels ? read(*of_channels) : nullptr, rows, of_channels ? of_channels->size(0) : 0,
      ignored, write(mean), write(count)};
  check_launch("mean_loss", reducer.launcher(&call, &arguments), reducer.error_text);
  return {mean, count};
}

}}  // namespace fusegen::glue
