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
#include "core/base/units.h"
#include "core/exec/task_pool.h"
#include "core/json/json_writer.h"
#include "formats/registry/stored_run.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/mesh_text.h"
#include "tools/cli/error_report.h"
#include "tools/cli/reporting.h"
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
};

// Where the run was, and whether the trainer computes its model, is not looked at.
Result<Loaded> Understand(Storage& storage, const OpenedCheckpoint& checkpoint,
                          const Path& assets) {
  // The caller owns the checkpoint; the state only refers to it.
  const std::shared_ptr<const OpenedCheckpoint> borrowed(std::shared_ptr<void>(), &checkpoint);
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const OpenedCheckpoint> seen, SeeParameters(borrowed));
  OpenModelOptions options;
  options.assets = assets;
  options.with_vocabulary_padding = true;  // of a run it is state like all other
  CKPT_ASSIGN_OR_RETURN(ModelSource weights, UnderstandModel(storage, std::move(seen), options));
  CKPT_ASSIGN_OR_RETURN(std::optional<TrainingState> state,
                        UnderstandOptimizer(storage, weights, options));
  Loaded loaded;
  if (state) {
    loaded.state = *std::move(state);
  } else {
    loaded.state.weights = std::move(weights);
  }
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration args, ReadRunArgs(checkpoint));
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration settings,
                        assets.empty() && args.contains("num_layers")
                            ? StoredModelShape(args)
                            : ModelSettings(loaded.state.weights.config));
  CKPT_ASSIGN_OR_RETURN(loaded.model, trainer::ReadStoredModel(settings));
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

void PrintJson(std::span<const train::RankLoad> loads, bool has_moments,
               const std::vector<Problem>& problems, Streams& streams) {
  const Sums sums = AddUp(loads);
  JsonWriter json(2);
  json.BeginObject();
  json.Key("optimizer").Bool(has_moments);
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

void PrintText(std::span<const train::RankLoad> loads, bool has_moments, Streams& streams) {
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
    streams.out.Write(fmt::format("and {} ranks more: --json has all\n", loads.size() - kMaxRows));
  }
  const Sums sums = AddUp(loads);
  streams.out.Write(fmt::format("{} ranks load {}: {} in {} reads, amplification {:.3f}\n",
                                loads.size(), has_moments ? "weights and optimizer" : "weights",
                                FormatByteSize(sums.bytes), sums.reads, sums.amplification()));
  streams.out.Write(fmt::format("a rank at most: {} in {} reads of {} files, {} of memory\n",
                                FormatByteSize(sums.most.bytes), sums.most.reads, sums.most.files,
                                FormatByteSize(sums.most.peak_memory)));
}

}  // namespace

Result<ExitCode> RunPlan(Storage& storage, const ListedCheckpoint& checkpoint,
                         const PlanOptions& options, Streams& streams) {
  trainer::TrainConfig config;
  CKPT_ASSIGN_OR_RETURN(config.mesh, ParseMesh(options.mesh));
  CKPT_ASSIGN_OR_RETURN(const Loaded loaded, Understand(storage, checkpoint, options.assets));
  config.model = loaded.model;
  CKPT_RETURN_IF_ERROR(
      trainer::ValidateMesh(config.mesh, config.model.moe ? config.model.moe->num_experts : 0));
  const train::LoadPlanOptions plan{.threads = options.common.threads > 0 ? options.common.threads
                                                                          : DefaultThreads()};
  CKPT_ASSIGN_OR_RETURN(const std::vector<train::RankLoad> loads,
                        train::PlanLoad(loaded.state.weights, loaded.state.moments, config, plan));
  const bool has_moments = !loaded.state.moments.empty();
  options.common.json ? PrintJson(loads, has_moments, checkpoint.problems, streams)
                      : PrintText(loads, has_moments, streams);
  return ExitCode::kDone;
}

}  // namespace ckpt::inspect
