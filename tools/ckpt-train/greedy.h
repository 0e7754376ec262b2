// The most likely continuation of a few tokens.
#ifndef CKPT_TOOLS_CKPT_TRAIN_GREEDY_H_
#define CKPT_TOOLS_CKPT_TRAIN_GREEDY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

struct GreedyOptions {
  std::int64_t num_tokens = 0;
  std::optional<std::int32_t> end_token = {};  // ends the continuation and is not part of it
};

// Adds the most likely token again and again; if ranks differ, rank 0's. It computes the whole
// sequence for every token, so it is for trying a model, not for serving one. Every rank calls it
// and gets the same tokens.
//
// REQUIRES: `prompt` is not empty and in the vocabulary. Errors: those of RankTrainer::Logits,
// kCancelled.
Result<std::vector<std::int32_t>> ContinueGreedily(trainer::RankTrainer& trainer,
                                                   trainer::HostGroup& world,
                                                   const std::vector<std::int32_t>& prompt,
                                                   const GreedyOptions& options);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_GREEDY_H_
