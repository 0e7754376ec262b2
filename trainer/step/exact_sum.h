// ExactSum: a sum of doubles whose bits do not depend on the order of its terms, nor on how ranks share them.
#ifndef CKPT_TRAINER_STEP_EXACT_SUM_H_
#define CKPT_TRAINER_STEP_EXACT_SUM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::trainer {

// A fixed-point number over the whole range of double, in limbs of 32 bits held in 64, so that carries wait: the limbs of
// several ranks may be added as integers (an int64 all-reduce) before Value() resolves them.
class ExactSum {
 public:
  static constexpr std::size_t kLimbs = 68;  // 2¹⁰²⁴ down to 2⁻¹⁰⁷⁴, and room above for carries

  // Terms that are not finite make the value NaN. At most 2³⁰ terms, over all ranks, between reads.
  void Add(double term);
  // The sum, rounded to nearest even once.
  [[nodiscard]] double Value() const;

  [[nodiscard]] std::span<std::int64_t, kLimbs> limbs() { return limbs_; }

 private:
  // Limb i weighs 2^(32·i - 1074); the last counts terms that were not finite.
  std::array<std::int64_t, kLimbs> limbs_{};
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_EXACT_SUM_H_
