// Records of fields that the programs of these tests share: tensors to read and to write, and sums.
#pragma once

#include "../support/kernels/program.cuh"

namespace fusegen {

FUSEGEN_SUMS(OneSum, (sum_v, Sum))

// Two sums, moments between them, and one more sum.
FUSEGEN_SUMS(SumsAndMoments,
    (first_sum_v, Sum)
    (moments_v, MeanAndSquares)
    (second_sum_v, Sum)
    (third_sum_v, Sum))

}  // namespace fusegen
