// ExactSum: a sum of doubles whose bits do not depend on the order of its terms, nor on how ranks
// share them.
#ifndef CKPT_TRAINER_STEP_EXACT_SUM_H_
#define CKPT_TRAINER_STEP_EXACT_SUM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::trainer {

// A fixed-point number over the whole range of double, in limbs of 32 bits held in 64, so that
// carries wait. Sums of several ranks are added limb by limb as integers (an int64 all-reduce of
// `limbs()`).
//
// One thread.
class ExactSum {
 public:
  // 2¹⁰²⁴ down to 2⁻¹⁰⁷⁴, room above for sums of 2⁶³ terms, and a count.
  static constexpr std::size_t kLimbs = 68;

  // Terms that are not finite make the value NaN. Cost: a few nanoseconds.
  void Add(double term);
  // The sum, rounded to nearest even once; past the largest double, infinity. Zero is +0.
  [[nodiscard]] double Value() const;

  // For adding other sums' limbs, those of fewer than 2³⁰ sums, element by element.
  [[nodiscard]] std::span<std::int64_t, kLimbs> limbs();

 private:
  // Limb i < kLimbs - 1 weighs 2^(32·i - 1074); the last counts terms that were not finite.
  std::array<std::int64_t, kLimbs> limbs_{};
  std::int64_t num_waiting_ = 0;  // terms added since the last carry
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_EXACT_SUM_H_
