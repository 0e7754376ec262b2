// Philox 4x32-10: random numbers as a function of (key, counter), the same on every mesh.
//
// Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3" (SC11).
//
// A stream (a key) and a position in it identify a number. No number depends on an earlier one, so
// a rank computes only the numbers of its own rows.
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

// The stream of `name` under `seed`. Runs with the same seed rely on it: never change it.
[[nodiscard]] std::array<std::uint32_t, 2> StreamKey(std::uint64_t seed, std::string_view name);

// Standard normal numbers at positions [begin, begin + out.size()) of a stream (Box-Muller on
// Philox). The number at a position has the same bits in every range that contains it. It is within
// ±6.77, because the radius has 32 random bits.
void FillNormal(std::array<std::uint32_t, 2> key, std::uint64_t begin, std::span<float> out);

// A number in [0, bound) at a position of a stream, each with equal probability. REQUIRES: bound >
// 0.
[[nodiscard]] std::uint64_t UniformBelow(std::array<std::uint32_t, 2> key, std::uint64_t position,
                                         std::uint64_t bound);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_RANDOM_PHILOX_H_
