#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/config/model_settings.h"
#include "converters/config/run_settings.h"
#include "converters/verbs/training_state.h"
#include "core/base/counted.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/json/json_writer.h"
#include "formats/registry/stored_run.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/mesh_text.h"
#include "tools/ckpt-inspect/selection.h"
#include "tools/cli/error_report.h"
#include "tools/cli/table.h"
#include "trainer/explain/load_plan.h"
#include "trainer/model/model_config.h"

namespace ckpt::inspect {
namespace {

constexpr std::size_t kMaxRows = 16;  // ranks that people see

// What a run loads: the weights, and what the optimizer keeps if that is there.
struct Loaded {
  TrainingState state;
  trainer::ModelConfig model;
  bool is_computed = true;        // by the trainer
  std::vector<Problem> warnings;  // why not, and what else is planned otherwise than asked

  // Says how a load is planned where nothing says what the model is, or nobody knows it. Errors:
  // any other, as of a model that is not whole.
  Status PlanInstead(std::string_view how, const Status& why) {
    if (why.kind() != ErrorKind::kNotFound && why.kind() != ErrorKind::kUnsupported) return why;
    Problem warning = why.first();
    warning.severity = Severity::kWarning;
    warning.message = fmt::format("planned {}: {}", how, warning.message);
    warnings.push_back(std::move(warning));
    return OkStatus();
  }

  // The same of a model that another trainer computes.
  Status PlanForOther(const Status& why) {
    is_computed = false;
    return PlanInstead("for a trainer that computes the model", why);
  }
};

// The model that the trainer computes. Errors: kUnsupported and others of the settings.
Result<trainer::ModelConfig> ReadModel(const OpenedCheckpoint& checkpoint, const Path& assets,
                                       const ModelSource& weights) {
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration args, ReadRunArgs(checkpoint));
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration settings,
                        assets.empty() && args.contains("num_layers")
                            ? StoredModelShape(args)
                            : ModelSettings(weights.config));
  Result<trainer::ModelConfig> model = trainer::ReadStoredModel(settings);
  if (model.ok() || model.status().kind() != ErrorKind::kUsage) return model;
  // Nobody gave these settings: they say what the checkpoint's model is.
  std::vector<Problem> problems = model.status().problems();
  for (Problem& problem : problems) {
    problem.kind = ErrorKind::kUnsupported;
    problem.message = fmt::format("ckpt-train does not compute this model: {}", problem.message);
  }
  return Status(std::move(problems));
}

// Where the run was is not looked at. Tensors of names that nobody knows are taken as they are
// stored, unless the caller says what model they are.
Result<Loaded> Understand(Storage& storage, const OpenedCheckpoint& checkpoint,
                          const Path& assets) {
  // The caller owns the checkpoint; the state only refers to it.
  const std::shared_ptr<const OpenedCheckpoint> borrowed(std::shared_ptr<void>(), &checkpoint);
  Loaded loaded;
  Result<std::shared_ptr<const OpenedCheckpoint>> parameters = SeeParameters(borrowed);
  const std::shared_ptr<const OpenedCheckpoint> seen = parameters.ok() ? *parameters : borrowed;
  OpenModelOptions options;
  options.assets = assets;
  options.with_vocabulary_padding = true;  // of a run it is state like all other
  Result<ModelSource> understood = UnderstandModel(storage, seen, options);
  if (!understood.ok()) {
    Result<ModelSource> stored = TakeAsStored(storage, seen, {});
    if (!stored.ok() || !assets.empty()) return std::move(understood).status();
    CKPT_RETURN_IF_ERROR(loaded.PlanInstead(
        "without a training state, each tensor divided by itself", std::move(understood).status()));
    loaded.is_computed = false;
    loaded.state.weights = *std::move(stored);
    std::erase_if(loaded.state.weights.stored,
                  [](const StoredTensor& tensor) { return IsTrainingState(tensor.key); });
    return loaded;
  }
  ModelSource weights = *std::move(understood);
  auto state = parameters.ok() ? UnderstandOptimizer(storage, weights, options)
                               : Result<std::optional<TrainingState>>(parameters.status());
  if (!state.ok()) {
    CKPT_RETURN_IF_ERROR(loaded.PlanInstead("without the optimizer", state.status()));
  }
  if (state.ok() && *state) {
    loaded.state = **std::move(state);
  } else {
    loaded.state.weights = std::move(weights);
  }
  Result<trainer::ModelConfig> model = ReadModel(checkpoint, assets, loaded.state.weights);
  if (model.ok()) {
    loaded.model = *std::move(model);
  } else {
    CKPT_RETURN_IF_ERROR(loaded.PlanForOther(model.status()));
  }
  return loaded;
}

struct Sums {
  std::uint64_t bytes = 0;
  std::uint64_t needed_bytes = 0;
  std::uint64_t reads = 0;
  train::RankLoad most;  // each field the largest of any rank

  [[nodiscard]] double amplification() const {
    return train::RankLoad{.bytes = bytes, .needed_bytes = needed_bytes}.amplification();
  }
};

Sums AddUp(std::span<const train::RankLoad> loads) {
  Sums sums;
  for (const train::RankLoad& load : loads) {
    sums.bytes += load.bytes;
    sums.needed_bytes += load.needed_bytes;
    sums.reads += load.reads;
    sums.most.bytes = std::max(sums.most.bytes, load.bytes);
    sums.most.reads = std::max(sums.most.reads, load.reads);
    sums.most.files = std::max(sums.most.files, load.files);
    sums.most.peak_memory = std::max(sums.most.peak_memory, load.peak_memory);
  }
  return sums;
}

// What of a run is there.
struct Parts {
  bool has_moments = false;
  std::size_t num_frozen = 0;  // parameters that the optimizer keeps nothing for
};

void PrintJson(std::span<const train::RankLoad> loads, const Parts& parts,
               const std::vector<Problem>& problems, Streams& streams) {
  const Sums sums = AddUp(loads);
  JsonWriter json(2);
  json.BeginObject();
  json.Key("optimizer").Bool(parts.has_moments);
  json.Key("frozen").Int(parts.num_frozen);
  json.Key("bytes").Int(sums.bytes);
  json.Key("reads").Int(sums.reads);
  json.Key("amplification").Double(sums.amplification());
  json.Key("peak_memory").Int(sums.most.peak_memory);
  json.Key("ranks").BeginArray();
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    const train::RankLoad& load = loads[rank];
    json.BeginObject().Key("rank").Int(rank);
    json.Key("bytes").Int(load.bytes).Key("files").Int(load.files).Key("reads").Int(load.reads);
    json.Key("amplification").Double(load.amplification());
    json.Key("peak_memory").Int(load.peak_memory).End();
    streams.out.Write(json.TakeSoFar());
  }
  json.End();
  cli::AppendProblemList(problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

void PrintText(std::span<const train::RankLoad> loads, const Parts& parts, Streams& streams) {
  using cli::Align;
  cli::Table table({{"RANK", Align::kRight},
                    {"BYTES", Align::kRight},
                    {"FILES", Align::kRight},
                    {"READS", Align::kRight},
                    {"AMPLIFICATION", Align::kRight},
                    {"MEMORY", Align::kRight}});
  for (std::size_t rank = 0; rank < std::min(loads.size(), kMaxRows); ++rank) {
    const train::RankLoad& load = loads[rank];
    table.AddRow({std::to_string(rank), FormatByteSize(load.bytes), std::to_string(load.files),
                  std::to_string(load.reads), fmt::format("{:.3f}", load.amplification()),
                  FormatByteSize(load.peak_memory)});
  }
  streams.out.Write(table.Format());
  if (loads.size() > kMaxRows) {
    streams.out.Write(
        fmt::format("and {} more: --json has all\n", Counted(loads.size() - kMaxRows, "rank")));
  }
  const Sums sums = AddUp(loads);
  streams.out.Write(fmt::format(
      "{} {} {}: {} in {}, amplification {:.3f}\n", Counted(loads.size(), "rank"),
      loads.size() == 1 ? "loads" : "load", parts.has_moments ? "weights and optimizer" : "weights",
      FormatByteSize(sums.bytes), Counted(sums.reads, "read"), sums.amplification()));
  streams.out.Write(fmt::format("a rank at most: {} in {} of {}, {} of memory\n",
                                FormatByteSize(sums.most.bytes), Counted(sums.most.reads, "read"),
                                Counted(sums.most.files, "file"),
                                FormatByteSize(sums.most.peak_memory)));
  if (parts.num_frozen == 0) return;
  streams.out.Write(fmt::format(
      "{} {} frozen: the optimizer keeps nothing for {}\n", Counted(parts.num_frozen, "parameter"),
      parts.num_frozen == 1 ? "is" : "are", parts.num_frozen == 1 ? "it" : "them"));
}

}  // namespace

Result<ExitCode> RunPlan(Storage& storage, const ListedCheckpoint& checkpoint,
                         const PlanOptions& options, Streams& streams) {
  trainer::TrainConfig config;
  CKPT_ASSIGN_OR_RETURN(config.mesh, ParseMesh(options.mesh));
  CKPT_ASSIGN_OR_RETURN(Loaded loaded, Understand(storage, checkpoint, options.assets));
  config.model = loaded.model;
  const auto plan = [&] {
    return train::PlanLoad(
        loaded.state.weights, loaded.state.moments, config,
        {.threads = options.common.threads > 0 ? options.common.threads : DefaultThreads(),
         .is_computed = loaded.is_computed,
         .words = WordsOfMesh(config.mesh)});
  };
  Result<std::vector<train::RankLoad>> planned = plan();
  if (!planned.ok() && planned.status().kind() == ErrorKind::kUnsupported && loaded.is_computed) {
    // It has parameters that the trainer's does not have.
    CKPT_RETURN_IF_ERROR(loaded.PlanForOther(planned.status()));
    planned = plan();
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<train::RankLoad> loads, std::move(planned));
  Parts parts = {.has_moments = !loaded.state.moments.empty()};
  CKPT_ASSIGN_OR_RETURN(parts.num_frozen, train::CountFrozen(loaded.state.weights,
                                                             loaded.state.moments, config.model));
  std::vector<Problem> problems = checkpoint.problems;
  for (const Problem& warning : loaded.warnings) {
    if (!options.common.json && !options.common.quiet) cli::PrintProblem(warning, streams);
    problems.push_back(warning);
  }
  options.common.json ? PrintJson(loads, parts, problems, streams)
                      : PrintText(loads, parts, streams);
  return ExitCode::kDone;
}

}  // namespace ckpt::inspect
