#ifndef CKPT_TESTS_TRAINER_MODEL_MAX_ABS_H_
#define CKPT_TESTS_TRAINER_MODEL_MAX_ABS_H_

#include <algorithm>
#include <cmath>
#include <vector>

namespace ckpt::testing {

inline double MaxAbs(const std::vector<double>& values) {
  double max = 0;
  for (const double value : values) max = std::max(max, std::abs(value));
  return max;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_MAX_ABS_H_
