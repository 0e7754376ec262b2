// Random numbers that any program can reproduce: outputs of splitmix64, by name and index.
#ifndef CKPT_TRAINER_BENCH_INTERNAL_COUNTER_RANDOM_H_
#define CKPT_TRAINER_BENCH_INTERNAL_COUNTER_RANDOM_H_

#include <cstdint>
#include <string_view>

namespace ckpt::train {

// The numbers of one stream. Number i depends on the seed, the name and i alone, so every rank
// computes its own part. Thread-safe.
class CounterRandom {
 public:
  // seed · 2³² + CRC-32 of the name.
  CounterRandom(std::uint32_t seed, std::string_view name);

  // Number i: the upper 31 bits of the output of splitmix64 for the state key + (i + 1) ·
  // 0x9E3779B97F4A7C15.
  [[nodiscard]] std::uint32_t Bits(std::uint64_t i) const;
  // Uniform, with mean 0 and standard deviation 0.02, from the upper 24 bits of number i.
  [[nodiscard]] float Weight(std::uint64_t i) const;

 private:
  std::uint64_t key_;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_BENCH_INTERNAL_COUNTER_RANDOM_H_
