#include "trainer/run/initial_weights.h"

#include "trainer/comm/agreement.h"
#include "trainer/run/internal/checked_load.h"
#include "trainer/run/internal/load_state.h"

namespace ckpt::train {

Status ReadInitialWeights(const ModelSource& model, std::uint64_t budget_bytes,
                          trainer::RankTrainer& trainer, trainer::HostGroup& world,
                          ProgressSink& progress) {
  // Hosts may have copies of their own.
  CKPT_RETURN_IF_ERROR(trainer::AgreeOnText(world, ManifestIdentity(model.checkpoint->manifest),
                                            "manifest of the checkpoint")
                           .File(model.checkpoint->path.string()));
  return LoadChecked(
      *model.checkpoint, [&] { return LoadWeights(model, budget_bytes, trainer, progress); },
      world);
}

std::uint64_t StoredWeightBytes(const trainer::ModelConfig& model) {
  return static_cast<std::uint64_t>(trainer::CountParameters(model)) * sizeof(float);
}

}  // namespace ckpt::train
