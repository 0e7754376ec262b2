#include "tools/ckpt-train/greedy.h"

#include <algorithm>

#include "core/base/check.h"
#include "trainer/comm/exchange_values.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::train {
namespace {

Result<std::int32_t> MostLikelyNext(trainer::RankTrainer& trainer,
                                    const std::vector<std::int32_t>& tokens) {
  const trainer::ModelConfig& model = trainer.config().model;
  const trainer::HostMicroBatch batch = {
      .tokens = tokens,
      .labels = std::vector<std::int32_t>(tokens.size(), trainer::kNoLabel),
      .batch = 1,
      .seq = static_cast<std::int64_t>(tokens.size())};
  CKPT_ASSIGN_OR_RETURN(const std::vector<float> logits, trainer.Logits(batch));
  const auto last = logits.end() - model.padded_vocab_size;
  return static_cast<std::int32_t>(std::max_element(last, last + model.vocab_size) - last);
}

// Ranks whose sums differ in the last bit could choose different tokens.
Result<std::int32_t> OfRankZero(std::int32_t mine, trainer::HostGroup& world) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int32_t> all, trainer::ExchangeValues(world, mine));
  return all.front();
}

}  // namespace

Result<std::vector<std::int32_t>> ContinueGreedily(trainer::RankTrainer& trainer,
                                                   trainer::HostGroup& world,
                                                   const std::vector<std::int32_t>& prompt,
                                                   const GreedyOptions& options) {
  CKPT_CHECK(!prompt.empty());
  std::vector<std::int32_t> tokens = prompt;
  for (std::int64_t i = 0; i < options.num_tokens; ++i) {
    CKPT_ASSIGN_OR_RETURN(const std::int32_t mine, MostLikelyNext(trainer, tokens));
    CKPT_ASSIGN_OR_RETURN(const std::int32_t next, OfRankZero(mine, world));
    if (next == options.end_token) break;
    tokens.push_back(next);
  }
  return std::vector<std::int32_t>(tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()),
                                   tokens.end());
}

}  // namespace ckpt::train
