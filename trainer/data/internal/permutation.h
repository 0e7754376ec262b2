// Permutation: [0, size) in a random order that is computed, not stored.
//
// A Feistel network over Philox permutes the numbers with as many bits as `size` needs. A number
// outside [0, size) passes through it again until it is inside (cycle walking: Black, Rogaway:
// "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). Fewer than half of the numbers are
// outside, so a look-up takes at most two passes on average.
#ifndef CKPT_TRAINER_DATA_INTERNAL_PERMUTATION_H_
#define CKPT_TRAINER_DATA_INTERNAL_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace ckpt::trainer {

// A value. Runs with the same seed rely on its results: never change them.
class Permutation {
 public:
  // The `number`-th permutation of a stream (StreamKey, trainer/random/philox.h). The stream must
  // have no other use.
  // REQUIRES: 0 < size <= 2⁶³.
  Permutation(std::array<std::uint32_t, 2> key, std::uint64_t number, std::uint64_t size);

  [[nodiscard]] std::uint64_t size() const { return size_; }

  // REQUIRES: position < size(). Cost: eight blocks of Philox per pass, under 1 µs.
  [[nodiscard]] std::uint64_t operator[](std::uint64_t position) const;

 private:
  [[nodiscard]] std::uint64_t Encrypt(std::uint64_t value) const;

  std::array<std::uint32_t, 2> key_;
  std::uint64_t number_;
  std::uint64_t size_;
  int low_bits_;
  int high_bits_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_INTERNAL_PERMUTATION_H_
