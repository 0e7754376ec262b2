// A state of a trainer that is like no other: every element a function of the state's number.
#ifndef CKPT_TESTS_TRAINER_CHECKPOINT_STATE_PATTERN_H_
#define CKPT_TESTS_TRAINER_CHECKPOINT_STATE_PATTERN_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/status.h"
#include "trainer/checkpoint/state_map.h"
#include "trainer/optim/optimizer.h"
#include "trainer/params/param_spec.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::testing {

// Elements of one tensor in one state. `part` is that of a StateMap.
class Pattern {
 public:
  Pattern(std::uint64_t state, std::string_view part, std::string_view name)
      : seed_(HashXxh3(AsBytes(std::string(part) + std::string(name)), state).low) {}

  // Between 1/2 and 2, of any sign and mantissa.
  [[nodiscard]] float At(std::int64_t element) const {
    constexpr std::uint32_t kSignAndMantissa = 0x807fffff;
    // SplitMix64's mixing of a counter.
    std::uint64_t x = seed_ + static_cast<std::uint64_t>(element + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    const std::uint32_t exponent = (x >> 40) % 2 == 0 ? 0x3f800000 : 0x3f000000;
    return std::bit_cast<float>((static_cast<std::uint32_t>(x) & kSignAndMantissa) | exponent);
  }

 private:
  std::uint64_t seed_;
};

inline std::int64_t RowElems(const trainer::ParamSpec& spec) {
  return NumElements(spec.shape) / spec.shape.front();
}

inline trainer::FillRows PatternRows(std::uint64_t state, std::string part) {
  return [state, part = std::move(part)](const trainer::ParamSpec& spec, std::int64_t row_begin,
                                         std::int64_t /*rows*/, std::span<float> values) {
    const Pattern pattern(state, part, spec.name);
    const std::int64_t first = row_begin * RowElems(spec);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = pattern.At(first + static_cast<std::int64_t>(i));
    }
    return OkStatus();
  };
}

// Gives weights, buffers and moments the values of state number `state`, whose number is also how
// often the optimizer stepped. Every rank calls it.
inline Status SetState(trainer::RankTrainer& trainer, std::uint64_t state) {
  CKPT_RETURN_IF_ERROR(trainer.SetWeights(PatternRows(state, std::string(trainer::kWeightsPart))));
  for (int moment = 0; moment < NumMoments(trainer.config().optimizer); ++moment) {
    CKPT_RETURN_IF_ERROR(
        trainer.SetMoment(moment, PatternRows(state, trainer::MomentPart(moment))));
  }
  trainer.optimizer().set_steps(static_cast<std::int64_t>(state));
  return OkStatus();
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_CHECKPOINT_STATE_PATTERN_H_
