#include "formats/megatron/internal/mersenne_twister.h"

#include <algorithm>

namespace ckpt::megatron {
namespace {

// What a word gets from the word before it.
std::uint32_t Mixed(std::uint32_t word, std::uint32_t factor) {
  return factor * (word ^ (word >> 30U));
}

// Walks through the words in a circle. After the last word it copies that word's value to the first
// one and continues with the second.
class Cycle {
 public:
  explicit Cycle(TwisterWords& words) : words_(words) {}

  [[nodiscard]] std::uint32_t at() const { return static_cast<std::uint32_t>(at_); }
  [[nodiscard]] std::uint32_t& word() { return words_[at_]; }
  [[nodiscard]] std::uint32_t previous() const { return words_[at_ - 1]; }
  void Advance() {
    if (++at_ < kTwisterWords) return;
    words_[0] = words_[kTwisterWords - 1];
    at_ = 1;
  }

 private:
  TwisterWords& words_;
  std::size_t at_ = 1;
};

}  // namespace

TwisterWords SeedTwister(std::uint32_t seed) {
  TwisterWords words;
  words[0] = seed;
  for (std::uint32_t i = 1; i < kTwisterWords; ++i) {
    words[i] = Mixed(words[i - 1], 1812433253U) + i;
  }
  return words;
}

TwisterWords SeedTwister(std::span<const std::uint32_t> key) {
  TwisterWords words = SeedTwister(19650218U);
  Cycle cycle(words);
  for (std::size_t i = 0; i < std::max(kTwisterWords, key.size()); ++i) {
    const std::size_t j = i % key.size();
    cycle.word() =
        (cycle.word() ^ Mixed(cycle.previous(), 1664525U)) + key[j] + static_cast<std::uint32_t>(j);
    cycle.Advance();
  }
  for (std::size_t i = 0; i + 1 < kTwisterWords; ++i) {
    cycle.word() = (cycle.word() ^ Mixed(cycle.previous(), 1566083941U)) - cycle.at();
    cycle.Advance();
  }
  words[0] = 0x80000000U;
  return words;
}

}  // namespace ckpt::megatron
