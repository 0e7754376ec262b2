// Reads the weights of a run from a model's files; each rank reads its own rows.
#ifndef CKPT_TRAINER_RUN_INITIAL_WEIGHTS_H_
#define CKPT_TRAINER_RUN_INITIAL_WEIGHTS_H_

#include <cstdint>

#include "converters/verbs/model_source.h"
#include "core/base/status.h"
#include "trainer/comm/host_group.h"
#include "trainer/model/model_config.h"
#include "trainer/run/run_progress.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// Sets every weight of this rank, and tells `voice` if they are rounded to the float32 that the
// trainer keeps. The ranks read each byte once. Every rank calls it. Errors: those of CheckFits,
// WeightReader and RankTrainer::SetWeights; damage that any rank meets is an error of all;
// kValueMismatch (the ranks' models have different manifests); kCancelled (a rank is gone).
Status ReadInitialWeights(const ModelSource& model, std::uint64_t budget_bytes,
                          trainer::RankTrainer& trainer, trainer::HostGroup& world,
                          const LoadVoice& voice);

// The bytes of a whole model's weights in float32, as they are read and stored.
[[nodiscard]] std::uint64_t StoredWeightBytes(const trainer::ModelConfig& model);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INITIAL_WEIGHTS_H_
