// Data of one sequence.
#ifndef CKPT_TESTS_TRAINER_RUN_SAME_TOKENS_H_
#define CKPT_TESTS_TRAINER_RUN_SAME_TOKENS_H_

#include <cstdint>

#include "trainer/data/sequence_source.h"

namespace ckpt::testing {

// The same tokens for ever.
class SameTokens final : public trainer::SequenceSource {
 public:
  std::int64_t seq_length() const override { return 4; }
  std::int64_t num_samples() const override { return 1; }
  Result<trainer::Sequence> Read(std::int64_t /*global_sample*/) const override {
    return trainer::Sequence{.tokens = {1, 2, 3, 4}, .labels = {2, 3, 4, 5}};
  }
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_RUN_SAME_TOKENS_H_
