#include "trainer/run/initial_weights.h"

#include <span>

#include "converters/families/known_namings.h"
#include "converters/verbs/weight_reader.h"
#include "trainer/comm/agreement.h"
#include "trainer/run/internal/checked_load.h"
#include "trainer/run/internal/fits_model.h"

namespace ckpt::train {

namespace {

Status ReadOwnRows(const ModelSource& model, std::uint64_t budget_bytes,
                   trainer::RankTrainer& trainer, ProgressSink& progress) {
  CKPT_ASSIGN_OR_RETURN(WeightReader weights,
                        WeightReader::Open(model, kTrainerNaming, {}, budget_bytes));
  CKPT_RETURN_IF_ERROR(CheckFits(model, weights.view(), trainer.config(), StoredPart::kWeights));
  return trainer.SetWeights([&](const trainer::ParamSpec& spec, std::int64_t row_begin,
                                std::int64_t rows, std::span<float> values) -> Status {
    CKPT_RETURN_IF_ERROR(weights.ReadRows(spec.name, row_begin, rows, values));
    progress.OnDone(spec.name, values.size_bytes());
    return OkStatus();
  });
}

}  // namespace

Status ReadInitialWeights(const ModelSource& model, std::uint64_t budget_bytes,
                          trainer::RankTrainer& trainer, trainer::HostGroup& world,
                          ProgressSink& progress) {
  // Hosts may have copies of their own.
  CKPT_RETURN_IF_ERROR(trainer::AgreeOnText(world, ManifestIdentity(model.checkpoint->manifest),
                                            "manifest of the checkpoint")
                           .File(model.checkpoint->path.string()));
  return LoadChecked(
      *model.checkpoint, [&] { return ReadOwnRows(model, budget_bytes, trainer, progress); },
      world);
}

std::uint64_t StoredWeightBytes(const trainer::ModelConfig& model) {
  return static_cast<std::uint64_t>(trainer::CountParameters(model)) * sizeof(float);
}

}  // namespace ckpt::train
