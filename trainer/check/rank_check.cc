#include "trainer/check/rank_check.h"

#include <memory>
#include <span>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/backend/backend_options.h"
#include "trainer/check/internal/whole_gradients.h"
#include "trainer/run/initial_weights.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {
namespace {

using trainer::HostMicroBatch;
using trainer::RankTrainer;

// Rank r computes sequences [r·n, (r+1)·n).
std::vector<HostMicroBatch> BatchesOf(const trainer::TrainConfig& config,
                                      const Reference& reference, int rank) {
  const std::int64_t first = rank * config.num_micro_batches() * config.micro_batch_size;
  std::vector<HostMicroBatch> batches;
  for (std::int64_t m = 0; m < config.num_micro_batches(); ++m) {
    batches.push_back(
        reference.Sequences(first + m * config.micro_batch_size, config.micro_batch_size));
  }
  return batches;
}

// Logits of all ranks' sequences, in order of rank.
Result<std::vector<float>> GatherLogits(RankTrainer& trainer, trainer::HostGroup& world,
                                        const std::vector<HostMicroBatch>& batches) {
  std::vector<float> mine;
  for (const HostMicroBatch& batch : batches) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<float> logits, trainer.Logits(batch));
    mine.insert(mine.end(), logits.begin(), logits.end());
  }
  std::vector<float> all(mine.size() * static_cast<std::size_t>(world.size()));
  CKPT_RETURN_IF_ERROR(
      world.Exchange(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))));
  return all;
}

}  // namespace

Result<Computed> ComputeOnRank(const CheckInput& input, trainer::HostGroup& world) {
  CKPT_ASSIGN_OR_RETURN(
      const trainer::Backend backend,
      trainer::MakeBackend(trainer::BackendOptionsOf(input.config, input.device, input.threads),
                           world));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RankTrainer> trainer,
                        RankTrainer::Create(input.config, world,
                                            {.device = backend.device.get(),
                                             .ops = backend.ops.get(),
                                             .assigned_experts = input.assigned_experts}));
  CKPT_RETURN_IF_ERROR(ReadInitialWeights(input.model, input.budget_bytes, *trainer, world,
                                          {.notice = {}, .progress = input.progress}));

  Computed computed;
  computed.vocab_size = input.config.model.vocab_size;
  computed.row_elems = input.config.model.padded_vocab_size;
  const std::vector<HostMicroBatch> batches =
      BatchesOf(input.config, input.reference, world.rank());
  if (input.reference.Has("logits")) {
    CKPT_ASSIGN_OR_RETURN(computed.logits, GatherLogits(*trainer, world, batches));
  }
  CKPT_ASSIGN_OR_RETURN(const trainer::StepReport report, trainer->ComputeGradients(batches));
  computed.loss = report.loss;
  if (input.all_gradients || !input.reference.gradients().empty()) {
    CKPT_ASSIGN_OR_RETURN(computed.gradients, GatherGradients(*trainer, world));
  }
  return computed;
}

}  // namespace ckpt::train
