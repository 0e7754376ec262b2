// Philox 4x32-10: random numbers as a function of (key, counter), the same on every mesh.
//
// Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3" (SC11).
//
// A number is named by its stream (a key) and its position in it. Nothing is drawn one after
// another, so a rank computes the numbers of its own rows and no others.
#ifndef CKPT_TRAINER_RANDOM_PHILOX_H_
#define CKPT_TRAINER_RANDOM_PHILOX_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace ckpt::trainer {

// One block of the generator: ten rounds, as Random123's `philox4x32`.
[[nodiscard]] std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key);

// The stream that belongs to `name` under `seed`. Part of what a seed means: never change it.
[[nodiscard]] std::array<std::uint32_t, 2> StreamKey(std::uint64_t seed, std::string_view name);

// Standard normal numbers at positions [begin, begin + out.size()) of a stream (Box-Muller on
// Philox). The number at a position has the same bits however the range is cut. It lies within
// ±6.77: the radius has 32 random bits.
void FillNormal(std::array<std::uint32_t, 2> key, std::uint64_t begin, std::span<float> out);

// A number in [0, bound) at a position of a stream, every one equally likely. REQUIRES: bound > 0.
[[nodiscard]] std::uint64_t UniformBelow(std::array<std::uint32_t, 2> key, std::uint64_t position,
                                         std::uint64_t bound);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_RANDOM_PHILOX_H_
