#include "trainer/run/internal/load_state.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "converters/verbs/weight_reader.h"
#include "trainer/optim/optimizer.h"
#include "trainer/run/internal/fits_model.h"
#include "trainer/run/internal/fits_optimizer.h"

namespace ckpt::train {
namespace {

trainer::FillRows RowsOf(WeightReader& reader, ProgressSink* progress) {
  return [&reader, progress](const trainer::ParamSpec& spec, std::int64_t begin, std::int64_t rows,
                             std::span<float> values) -> Status {
    CKPT_RETURN_IF_ERROR(reader.ReadRows(spec.name, begin, rows, values));
    if (progress != nullptr) progress->OnDone(spec.name, values.size_bytes());
    return OkStatus();
  };
}

Result<WeightReader> OpenFitting(const ModelSource& model, std::uint64_t budget_bytes,
                                 const trainer::TrainConfig& config, StoredPart part) {
  CKPT_ASSIGN_OR_RETURN(WeightReader reader,
                        WeightReader::Open(model, kTrainerNaming, {}, budget_bytes));
  CKPT_RETURN_IF_ERROR(CheckFits(model, reader.view(), config, part));
  return reader;
}

// SGD without momentum keeps nothing, so its groups are asked, too.
Status CheckOptimizer(const TrainingState& state, const trainer::OptimizerConfig& optimizer) {
  const bool is_sgd = optimizer.kind == trainer::OptimizerKind::kSgd;
  const auto expected = static_cast<std::size_t>(NumMoments(optimizer));
  const bool fits = state.moments.empty() || state.moments.size() == expected;
  if (fits && state.run.uses_sgd() == is_sgd) return OkStatus();
  const auto say = [](bool sgd, std::size_t values) {
    return fmt::format("{} with {} values per weight", sgd ? "sgd" : "adam", values);
  };
  return Error(ErrorKind::kUnsupported, "the checkpoint was saved by another optimizer")
      .File(state.weights.checkpoint->path.string())
      .Expected(say(is_sgd, expected))
      .Actual(say(state.run.uses_sgd(), state.moments.size()))
      .Hint("--set finetune=true takes only the weights");
}

}  // namespace

Status LoadWeights(const ModelSource& model, std::uint64_t budget_bytes,
                   trainer::RankTrainer& trainer, const LoadVoice& voice) {
  CKPT_ASSIGN_OR_RETURN(WeightReader weights, OpenFitting(model, budget_bytes, trainer.config(),
                                                          StoredPart::kWeightsAlone));
  const std::string rounding = DescribeRounding(model, weights.view());
  if (!rounding.empty() && voice.notice) voice.notice(rounding);
  return trainer.SetWeights(RowsOf(weights, &voice.progress));
}

Status LoadState(const TrainingState& state, trainer::RankTrainer& trainer,
                 ProgressSink* progress) {
  CKPT_RETURN_IF_ERROR(CheckOptimizer(state, trainer.config().optimizer));
  CKPT_RETURN_IF_ERROR(CheckGroupsAreAlike(state));
  CKPT_ASSIGN_OR_RETURN(WeightReader weights, OpenFitting(state.weights, kLoadBudgetBytes,
                                                          trainer.config(), StoredPart::kWeights));
  CKPT_RETURN_IF_ERROR(trainer.SetWeights(RowsOf(weights, progress)));
  CKPT_RETURN_IF_ERROR(CheckDecaysAlike(state, trainer.config()));
  trainer.optimizer().set_steps(state.run.finished_updates());
  for (std::size_t m = 0; m < state.moments.size(); ++m) {
    CKPT_ASSIGN_OR_RETURN(WeightReader moment, OpenFitting(state.moments[m], kLoadBudgetBytes,
                                                           trainer.config(), StoredPart::kMoment));
    CKPT_RETURN_IF_ERROR(trainer.SetMoment(static_cast<int>(m), RowsOf(moment, progress)));
  }
  return OkStatus();
}

}  // namespace ckpt::train
