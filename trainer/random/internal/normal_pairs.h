// Normal numbers from random words, by Box and Muller.
#ifndef CKPT_TRAINER_RANDOM_INTERNAL_NORMAL_PAIRS_H_
#define CKPT_TRAINER_RANDOM_INTERNAL_NORMAL_PAIRS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::trainer {

// Two normal numbers from two words. Computed in double; rounding to float removes the small
// differences between mathematical libraries.
void NormalPair(std::uint32_t radius_bits, std::uint32_t angle_bits, float* out);

inline constexpr std::size_t kPairsAtOnce = 128;

// The same numbers, bit for bit, of many words at a time: a third of the time.
void NormalPairs(std::span<const std::uint32_t, kPairsAtOnce> radius_bits,
                 std::span<const std::uint32_t, kPairsAtOnce> angle_bits,
                 std::span<float, 2 * kPairsAtOnce> out);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_RANDOM_INTERNAL_NORMAL_PAIRS_H_
