// Amounts that forecasts compute with: milliseconds and bytes, as doubles.
#ifndef CKPT_TRAINER_EXPLAIN_INTERNAL_AMOUNTS_H_
#define CKPT_TRAINER_EXPLAIN_INTERNAL_AMOUNTS_H_

#include <cstdint>

#include "core/tensor/dtype.h"

namespace ckpt::train {

inline constexpr double kMs = 1e3;  // of a second

// In bytes.
[[nodiscard]] inline double SizeOf(std::int64_t elems, DType dtype) {
  return static_cast<double>(elems) * static_cast<double>(ElementBytes(dtype));
}

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_INTERNAL_AMOUNTS_H_
