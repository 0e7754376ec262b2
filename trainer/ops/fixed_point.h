// Fixed-point gradients: sums that do not depend on their order.
#ifndef CKPT_TRAINER_OPS_FIXED_POINT_H_
#define CKPT_TRAINER_OPS_FIXED_POINT_H_

#include <cmath>
#include <cstdint>

namespace ckpt::trainer {

// A contribution (one micro-batch's gradient of one element) is rounded once to a multiple of 2⁻⁴⁰
// and from then on added as an integer, so that every mesh gets the same bits. The range is ±2¹⁵. A
// contribution beyond it, or one that is not finite, counts as the limit, whatever its sign, and a
// sum past the limit reads as NaN: the finiteness check of a step reports it, as long as fewer than
// 256 contributions to one element are bad at once.
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
