// ExactSum: a sum of doubles whose bits do not depend on the order of its terms, nor on how the
// terms are divided among ranks.
#ifndef CKPT_TRAINER_OPS_EXACT_SUM_H_
#define CKPT_TRAINER_OPS_EXACT_SUM_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ckpt::trainer {

// A fixed-point number over the whole range of double. Its limbs have 32 bits and are held in 64,
// so carries can wait. Sums of several ranks are added limb by limb as integers (an int64
// all-reduce of `limbs()`).
//
// One thread.
class ExactSum {
 public:
  // From 2¹⁰²⁴ down to 2⁻¹⁰⁷⁴, plus bits for sums of 2⁶³ terms, plus a count.
  static constexpr std::size_t kLimbs = 68;
  using Limbs = std::array<std::int64_t, kLimbs>;

  ExactSum() = default;
  // The sum of which these are the `limbs()`, or of several sums whose limbs were added.
  explicit ExactSum(const Limbs& limbs) : limbs_(limbs) { (void)this->limbs(); }

  // A term that is not finite makes the value NaN. Cost: a few nanoseconds.
  void Add(double term);
  void Add(const ExactSum& other);
  // The sum, rounded once to nearest even; beyond the largest double, infinity. Zero is +0.
  [[nodiscard]] double Value() const;

  // For adding the limbs of other sums, fewer than 2³⁰ of them, element by element.
  [[nodiscard]] Limbs& limbs();

 private:
  // Limb i < kLimbs - 1 has the weight 2^(32·i - 1074). The last counts terms that were not finite.
  Limbs limbs_{};
  std::int64_t num_waiting_ = 0;  // terms added since the last carry
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_EXACT_SUM_H_
