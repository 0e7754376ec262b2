// How the libraries that a Megatron run draws from seed their Mersenne twister, MT19937.
#ifndef CKPT_FORMATS_MEGATRON_INTERNAL_MERSENNE_TWISTER_H_
#define CKPT_FORMATS_MEGATRON_INTERNAL_MERSENNE_TWISTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::megatron {

inline constexpr std::size_t kTwisterWords = 624;
using TwisterWords = std::array<std::uint32_t, kTwisterWords>;

// Both are the initialisation of Matsumoto and Nishimura's mt19937ar.c (2002), of the name given
// there in brackets; every word is used up, so that the first draw twists.

// [init_genrand] As torch and numpy seed.
[[nodiscard]] TwisterWords SeedTwister(std::uint32_t seed);
// [init_by_array] As Python seeds. REQUIRES: `key` is not empty.
[[nodiscard]] TwisterWords SeedTwister(std::span<const std::uint32_t> key);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_INTERNAL_MERSENNE_TWISTER_H_
