// LaneSum: a long sum, in one order and in vector registers.
#ifndef CKPT_TRAINER_DEVICE_CPU_LANE_SUM_H_
#define CKPT_TRAINER_DEVICE_CPU_LANE_SUM_H_

#include <cstdint>

namespace ckpt::trainer {

// Σ term(i) for i in [0, count), in an order that depends only on `count`: sixteen lanes, then
// pairwise.
template <typename Sum, typename Term>
inline Sum LaneSum(std::int64_t count, const Term& term) {
  constexpr int kLanes = 16;
  Sum running[kLanes] = {};
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) running[lane] += static_cast<Sum>(term(i + lane));
  }
  // The remaining terms go to a copy. So `running` can stay in registers, because no variable index
  // is used on it.
  Sum lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = running[lane];
  for (std::int64_t i = whole; i < count; ++i) lanes[i - whole] += static_cast<Sum>(term(i));
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_LANE_SUM_H_
