// Records of fields that the programs of these tests share: tensors to read and to write, and sums.
#pragma once

#include "../support/kernels/program.cuh"

namespace fusegen {

template <typename X, template <typename> class Of>
struct RecordX {
  static constexpr int kFields = 1;
  Of<X> x_v;
  FUSEGEN_EACH { f(Index<0>(), r.x_v...); }
};

template <typename X, typename Z, template <typename> class Of>
struct RecordXZ {
  static constexpr int kFields = 2;
  Of<X> x_v;
  Of<Z> z_v;
  FUSEGEN_EACH { f(Index<0>(), r.x_v...), f(Index<1>(), r.z_v...); }
};

template <typename Y, template <typename> class Of>
struct RecordY {
  static constexpr int kFields = 1;
  Of<Y> y_v;
  FUSEGEN_EACH { f(Index<0>(), r.y_v...); }
};

template <template <typename> class Of>
struct OneSum {
  static constexpr int kFields = 1, kComponents = 1;
  Of<Sum> sum_v;
  FUSEGEN_EACH { f(Index<0>(), r.sum_v...); }
};

// Two sums, moments between them, and one more sum.
template <template <typename> class Of>
struct SumsAndMoments {
  static constexpr int kFields = 4, kComponents = 5;
  Of<Sum> first_sum_v;
  Of<MeanAndSquares> moments_v;
  Of<Sum> second_sum_v;
  Of<Sum> third_sum_v;
  FUSEGEN_EACH {
    f(Index<0>(), r.first_sum_v...);
    f(Index<1>(), r.moments_v...);
    f(Index<2>(), r.second_sum_v...);
    f(Index<3>(), r.third_sum_v...);
  }
};

}  // namespace fusegen
