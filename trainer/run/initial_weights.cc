#include "trainer/run/initial_weights.h"

#include "trainer/comm/agreement.h"
#include "trainer/run/internal/checked_load.h"
#include "trainer/run/internal/load_state.h"

namespace ckpt::train {

Status ReadInitialWeights(const ModelSource& model, std::uint64_t budget_bytes,
                          trainer::RankTrainer& trainer, trainer::HostGroup& world,
                          const LoadVoice& voice) {
  // Hosts may have copies of their own.
  CKPT_RETURN_IF_ERROR(trainer::AgreeOnText(world, ManifestIdentity(model.checkpoint->manifest),
                                            "manifest of the checkpoint")
                           .File(model.checkpoint->path.string()));
  const LoadVoice own = {.notice = world.rank() == 0 ? voice.notice : Notice(),
                         .progress = voice.progress};
  return LoadChecked(
      *model.checkpoint, [&] { return LoadWeights(model, budget_bytes, trainer, own); }, world);
}

std::uint64_t StoredWeightBytes(const trainer::ModelConfig& model) {
  return static_cast<std::uint64_t>(trainer::CountParameters(model)) * sizeof(float);
}

}  // namespace ckpt::train
