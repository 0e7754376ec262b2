// Fixed-point gradients, whose sums do not depend on the order of addition.
#ifndef CKPT_TRAINER_OPS_FIXED_POINT_H_
#define CKPT_TRAINER_OPS_FIXED_POINT_H_

#include <cmath>
#include <cstdint>

namespace ckpt::trainer {

// A contribution (the gradient of one element from one micro-batch) is rounded once to a multiple
// of 2⁻⁴⁰. From then on it is added as an integer, so every mesh gets the same bits. The range is
// ±2¹⁵. A contribution that is outside it or not finite counts as the limit, of either sign, and a
// sum beyond the limit reads as NaN. The finiteness check of a step reports it if fewer than 256
// contributions to one element are invalid at once.
inline constexpr int kFixedPointBits = 40;
inline constexpr std::int64_t kFixedPointLimit = std::int64_t{1} << 55;

inline std::int64_t ToFixedPoint(double value) {
  const double scaled = value * static_cast<double>(std::int64_t{1} << kFixedPointBits);
  if (!(std::abs(scaled) < static_cast<double>(kFixedPointLimit))) return kFixedPointLimit;
  return std::llrint(scaled);
}

inline double FromFixedPoint(std::int64_t value) {
  if (value >= kFixedPointLimit || value <= -kFixedPointLimit) return std::nan("");
  return static_cast<double>(value) / static_cast<double>(std::int64_t{1} << kFixedPointBits);
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_FIXED_POINT_H_
