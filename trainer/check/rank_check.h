// One rank's part of a check: loss, logits and gradients of one batch.
#ifndef CKPT_TRAINER_CHECK_RANK_CHECK_H_
#define CKPT_TRAINER_CHECK_RANK_CHECK_H_

#include <cstdint>
#include <span>
#include <string>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/exec/progress.h"
#include "trainer/check/comparison.h"
#include "trainer/check/reference.h"
#include "trainer/comm/host_group.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// What every rank of a check gets. Everything outlives the ranks.
struct CheckInput {
  const trainer::TrainConfig& config;
  const ModelSource& model;
  const Reference& reference;
  std::uint64_t budget_bytes = 0;  // for reading weights, per rank
  int threads = 1;                 // per rank
  std::string device;              // name of a backend
  bool all_gradients = false;      // or none, where the reference has none
  // Tokens go to these experts in every layer, whatever a router prefers (TrainerRuntime); empty:
  // the router chooses.
  std::span<const std::int32_t> assigned_experts = {};
  ProgressSink& progress;
};

// Reads this rank's share of the weights, computes its share of the batch, and joins all results on
// rank 0. The other ranks get only the loss. Every rank of `world` calls it.
//
// Errors: those of MakeBackend, WeightReader and RankTrainer.
Result<Computed> ComputeOnRank(const CheckInput& input, trainer::HostGroup& world);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_CHECK_RANK_CHECK_H_
