// e^x in a form that the compiler can vectorise in a loop.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_EXP_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_EXP_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace ckpt::trainer {

// Within 1 unit in the last place, also for subnormal results. Infinities and NaN are as in
// std::exp.
[[gnu::always_inline]] inline float Exp(float x) {
  // e^x = 2ⁿ·e^r, where n is the nearest integer to x·log₂e, so |r| <= ln 2 / 2. The polynomial and
  // the two parts of ln 2 are taken from Cephes' expf.
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // n·kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5·2²³: adding it puts n into the low bits
  x = x < -104.0F ? -104.0F : x;         // the result rounds to 0
  x = x > 89.0F ? 89.0F : x;             // the result rounds to infinity
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float power_of_r = p * (r * r) + r + 1.0F;
  // 2ⁿ in two factors, because n is from -150 to 128 but an exponent only from -126 to 127.
  const std::int32_t power =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound);
  const std::int32_t half = power >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((power - half + 127) << 23);
  return power_of_r * first * second;
}

inline double Exp(double x) { return std::exp(x); }

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_EXP_H_
