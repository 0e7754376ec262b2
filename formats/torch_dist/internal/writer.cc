#include "formats/torch_dist/internal/writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/checked_math.h"
#include "core/base/warning.h"
#include "core/checkpoint/add_file.h"
#include "formats/dcp/run_options.h"
#include "formats/dcp/writer.h"
#include "formats/format.h"
#include "formats/megatron/bridge_files.h"
#include "formats/megatron/plan_root.h"
#include "formats/megatron/random_states.h"
#include "formats/megatron/root.h"
#include "formats/pickle/writer.h"
#include "formats/torch_dist/internal/common_state.h"
#include "formats/torch_dist/internal/grouped_states.h"
#include "formats/torch_dist/internal/packed_buffers.h"
#include "formats/torch_dist/internal/predicted_buffers.h"
#include "formats/torch_dist/internal/run_arguments.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/run_ranks.h"
#include "formats/torch_dist/internal/source.h"
#include "formats/torch_dist/internal/weight_key.h"
#include "formats/torch_save/torch_item.h"

namespace ckpt::torch_dist {
namespace {

using pickle::Dialect;
using pickle::PickleWriter;

// The largest published models have a hundred thousand modules.
constexpr std::int64_t kMaxObjects = 1 << 22;

constexpr std::string_view kMetadataCompat =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, )"
    R"("common_backend": "torch", "common_backend_version": 1})";
constexpr std::string_view kMetadataSince019 =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})";

// What Megatron-Core stores under the key of an object: a list of one element.
template <typename Write>
Bytes PickleObject(const Write& write) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  pickle.BeginList();
  write(pickle);
  pickle.EndList();
  return pickle.Take();
}

// "decoder.layers.mlp.linear_fc1._extra_state/shard_3_16", for every place in the grid.
Status AddObjects(const EmptyObjects& objects, std::vector<PickledEntry>& out) {
  const Dims grid = objects.grid.empty() ? Dims{1} : objects.grid;
  std::int64_t count = static_cast<std::int64_t>(out.size());
  std::int64_t places = 1;
  for (const std::int64_t extent : grid) {
    if (!CheckedMul(places, extent, &places)) places = kMaxObjects + 1;
  }
  if (places > kMaxObjects || count + places > kMaxObjects) {
    return Error(ErrorKind::kResource, "more objects than any model has")
        .Tensor(objects.key)
        .Expected(fmt::format("at most {}", kMaxObjects))
        .Actual(fmt::format("a grid of {}", fmt::join(grid, " x ")));
  }
  const Bytes none = PickleObject([](PickleWriter& pickle) { pickle.None(); });
  Dims place(grid.size(), 0);
  for (std::int64_t i = 0; i < places; ++i) {
    out.push_back({.key = fmt::format("{}/shard_{}_{}", objects.key, fmt::join(place, "."),
                                      fmt::join(grid, ".")),
                   .value = {none}});
    for (std::size_t d = grid.size(); d-- > 0;) {
      if (++place[d] < grid[d]) break;
      place[d] = 0;
    }
  }
  return OkStatus();
}

// A dictionary of random states, each a tensor of bytes, as a list of one: of one rank in the grid
// of pipeline and tensor ranks.
PickledEntry RandomStates(const TrainingRun& run, int pipeline_rank, int tensor_rank) {
  // As Megatron seeds the stages of a pipeline.
  const std::uint64_t seed = run.seed + 100 * static_cast<std::uint64_t>(pipeline_rank);
  std::vector<Bytes> storages;
  const auto tensor = [&](std::string_view name, Bytes state, PickleWriter& pickle) {
    pickle.Text(name);
    torch_save::WriteTensor(static_cast<std::int64_t>(storages.size()), DType::kUint8,
                            Dims{static_cast<std::int64_t>(state.size())}, pickle);
    storages.push_back(std::move(state));
  };
  Bytes pickled = PickleObject([&](PickleWriter& pickle) {
    const auto rank = static_cast<std::uint64_t>(tensor_rank);
    pickle.BeginList().BeginDict();
    pickle.Text("random_rng_state");
    megatron::WritePythonState(seed, pickle);
    pickle.Text("np_rng_state");
    megatron::WriteNumpyState(seed, pickle);
    tensor("torch_rng_state", megatron::TorchCpuState(seed), pickle);
    tensor("cuda_rng_state", megatron::TorchCudaState(seed), pickle);
    pickle.Text("rng_tracker_states").BeginDict();
    for (const megatron::TrackedState& tracked : megatron::TrackedStates(seed, rank)) {
      tensor(tracked.name, megatron::TorchCudaState(tracked.seed), pickle);
    }
    pickle.EndDict().EndDict().EndList();
  });
  return {.key = fmt::format("rng_state/shard_{}.{}_{}.{}", pipeline_rank, tensor_rank,
                             run.pipeline_ranks, run.tensor_ranks),
          .value = {.pickle = std::move(pickled), .storages = std::move(storages)}};
}

std::vector<PickledEntry> AllRandomStates(const TrainingRun& run) {
  std::vector<PickledEntry> states;
  for (int stage = 0; stage < run.pipeline_ranks; ++stage) {
    for (int rank = 0; rank < run.tensor_ranks; ++rank) {
      states.push_back(RandomStates(run, stage, rank));
    }
  }
  return states;
}

// What both kinds of checkpoints have beside their tensors.
struct Content {
  bool is_compat = true;
  std::string directory;  // empty, or ends with a slash
  std::function<void(PickleWriter&)> write_common;
  std::vector<WriteCopy> side_files;
  const TrainingRun* bridged = nullptr;  // what Megatron-Bridge's files say; null: there are none
};

Result<WritePlan> Plan(std::vector<TargetTensor> tensors, const std::vector<EmptyObjects>& objects,
                       const Content& content, dcp::WriterOptions options) {
  if (!content.is_compat) {
    options.objects.push_back(
        {.key = std::string(kCommonItem), .value = {PickleObject(content.write_common)}});
  }
  for (const EmptyObjects& grid : objects) {
    CKPT_RETURN_IF_ERROR(AddObjects(grid, options.objects));
  }
  options.stores_paths = false;
  options.directory = content.directory;
  CKPT_ASSIGN_OR_RETURN(WritePlan plan, dcp::PlanDcp(std::move(tensors), options));
  if (content.is_compat) {
    PickleWriter common(Dialect::kWeightsOnly);
    content.write_common(common);
    AddFile(fmt::format("{}{}", content.directory, kCommonFile),
            torch_save::ObjectItem(common.Take()), plan);
  }
  Bytes metadata;
  Append(content.is_compat ? kMetadataCompat : kMetadataSince019, metadata);
  AddFile(fmt::format("{}{}", content.directory, kMetadataFile), std::move(metadata), plan);
  megatron::AddCopies(content.side_files, fmt::format("{}{}/", content.directory, kAssetsDirectory),
                      plan);
  if (content.bridged != nullptr) {
    megatron::AddBridgeFiles(
        *content.bridged,
        {.format = "torch_dist", .side_files = content.side_files, .directory = content.directory},
        plan);
  }
  return plan;
}

// How one rank of Megatron-Core cuts tensors: into one block for each layer and expert, and for
// each half of a gated projection. Of those that it does not cut, there is none.
dcp::BlockGrids GridsOfMegatron(const std::vector<TargetTensor>& tensors,
                                const layout::Configuration& args) {
  const bool is_gated = RunRanks::Of(args).is_gated;
  dcp::BlockGrids grids;
  for (const TargetTensor& tensor : tensors) {
    if (WithoutNumber(tensor.key).starts_with(kOptimizerBuffers)) continue;
    if (IsEmpty(WholeBox(tensor.shape))) continue;
    Dims grid(tensor.shape.size(), 1);
    const std::size_t dim = std::min(FormOfKey(tensor.key).leading_dims(), grid.size());
    std::copy_n(tensor.shape.begin(), dim, grid.begin());
    const bool is_halved =
        is_gated && MayBeGated(tensor.key) && dim < grid.size() && tensor.shape[dim] % 2 == 0;
    if (is_halved) grid[dim] = 2;
    if (dim > 0 || is_halved) grids.emplace(tensor.key, std::move(grid));
  }
  return grids;
}

// Moves those of the optimizer's tensors out: Megatron-Core up to 0.15 flattens their blocks.
dcp::BlockGrids FlattenOptimizer(const std::vector<TargetTensor>& tensors, dcp::BlockGrids& grids) {
  dcp::BlockGrids flattened;
  for (const TargetTensor& tensor : tensors) {
    if (!tensor.key.starts_with(kOptimizerState)) continue;
    auto grid = grids.extract(tensor.key);
    flattened.emplace(tensor.key,
                      grid.empty() ? Dims(tensor.shape.size(), 1) : std::move(grid.mapped()));
  }
  return flattened;
}

// Says in its arguments which ranks the run had.
void NameRanks(TrainingRun& run) {
  for (const auto& [name, value] : run.rank_sizes) {
    const auto said =
        std::ranges::find(run.args, name, &std::pair<std::string, layout::Value>::first);
    if (said != run.args.end()) said->second = value;
  }
  const layout::Configuration args(run.args.begin(), run.args.end());
  const RunRanks ranks = RunRanks::Of(args);
  run.tensor_ranks = static_cast<int>(ranks.tensor);
  run.pipeline_ranks = static_cast<int>(ranks.pipeline);
}

// A run in the form that was chosen, whatever files it lies in.
struct FormedRun {
  RunEntries entries;  // all but the common state
  ExpertOptimizer experts = ExpertOptimizer::kJoint;
  std::string form;
  std::map<std::string, std::vector<std::int64_t>> chunk_ends = {};  // of buffers
};

// The request's optimizer as buffers, and what is stored beside them.
Status PackOptimizer(RunRequest& request, FormedRun& formed) {
  if (!request.placed.empty()) {
    return Error(ErrorKind::kUsage, "several processes do not pack an optimizer into buffers");
  }
  TrainingRun& run = request.run;
  NameRanks(run);
  const layout::Configuration args(run.args.begin(), run.args.end());
  CKPT_RETURN_IF_ERROR(CheckBufferArguments(args));
  RankBuffers buffers = std::move(run.buffers);
  CKPT_RETURN_IF_ERROR(CheckOrder(buffers, args));
  if (buffers.empty()) {
    CKPT_ASSIGN_OR_RETURN(buffers, PredictBuffers(request.tensors, args));
  }
  CKPT_RETURN_IF_ERROR(CheckRanks(buffers, args));
  CKPT_ASSIGN_OR_RETURN(const bool are_apart, HaveExpertOptimizer(buffers));
  // The option's first value may be there because somebody asked for it.
  if (IsChosen(request.forms, kExpertOption, are_apart ? kJointExperts : kSeparateExperts)) {
    return Error(ErrorKind::kUsage, are_apart ? "the run's experts have buffers of their own"
                                              : "the run's experts have no buffers of their own")
        .Hint("leave ckpt-convert's --expert-optimizer out: the buffers say who updates experts");
  }
  formed.experts = are_apart ? ExpertOptimizer::kSeparate : ExpertOptimizer::kJoint;
  CKPT_ASSIGN_OR_RETURN(PackedBuffers packed, PackBuffers(buffers, std::move(request.tensors)));
  formed.entries = {.tensors = std::move(packed.tensors),
                    .packed = std::move(packed.parts),
                    .objects = ObjectsBesideBuffers(buffers, run, are_apart)};
  formed.chunk_ends = std::move(packed.chunk_ends);
  return OkStatus();
}

// Megatron-Core up to 0.15 flattens states of such experts in another order than their weights
// (grouped_states.h).
Status CheckModelSpace(const std::vector<TargetTensor>& tensors,
                       const layout::Configuration& args) {
  if (!RunArguments(args).HasOneArrayOfExperts()) return OkStatus();
  for (const TargetTensor& tensor : tensors) {
    if (!IsOfGroupedExperts(tensor.key)) continue;
    return Error(ErrorKind::kUnsupported,
                 "states of experts that are one parameter are not written in this form")
        .Tensor(tensor.key)
        .Actual("args.moe_grouped_gemm without Transformer Engine's layers")
        .Hint(std::string(kOtherForm));
  }
  return OkStatus();
}

// Takes the request's tensors. In buffers, the run names the ranks that have them.
Result<FormedRun> FormRun(RunRequest& request) {
  const auto chosen = request.forms.find(kOptimizerOption);
  FormedRun formed;
  formed.form = chosen == request.forms.end() ? kFullyReshardable : chosen->second;
  if (formed.form == kDpReshardable) {
    CKPT_RETURN_IF_ERROR(PackOptimizer(request, formed));
  } else {
    if (formed.form == kModelSpace) {
      const layout::Configuration args(request.run.args.begin(), request.run.args.end());
      CKPT_RETURN_IF_ERROR(CheckModelSpace(request.tensors, args));
    }
    formed.entries.tensors = std::move(request.tensors);
    if (IsChosen(request.forms, kExpertOption, kSeparateExperts)) {
      formed.experts = ExpertOptimizer::kSeparate;
    }
  }
  std::ranges::move(AllRandomStates(request.run), std::back_inserter(formed.entries.objects));
  return formed;
}

}  // namespace

Result<PlannedCheckpoint> PlanRelease(WeightsRequest request) {
  TrainingRun model;
  if (request.run_args) {
    CKPT_ASSIGN_OR_RETURN(model.args, request.run_args());
  }
  dcp::WriterOptions options;
  options.files = request.files;
  options.max_file_bytes = request.max_file_bytes;
  options.zstd_level = request.zstd_level;
  options.grids =
      GridsOfMegatron(request.tensors, layout::Configuration(model.args.begin(), model.args.end()));
  const Content content = {
      .is_compat = !IsChosen(request.forms, kGenerationOption, kSince019),
      .directory = std::string(megatron::kReleaseDirectory) + "/",
      .write_common = [&](PickleWriter& pickle) { WriteModelState(model.args, pickle); },
      .side_files = std::move(request.side_files),
      .bridged = megatron::IsOfBridge(request.forms) ? &model : nullptr};
  PlannedCheckpoint planned;
  CKPT_ASSIGN_OR_RETURN(
      planned.plan, Plan(std::move(request.tensors), request.objects, content, std::move(options)));
  megatron::AddTracker(megatron::kReleaseDirectory, planned.plan);
  planned.checkpoint_directory = megatron::kReleaseDirectory;
  return planned;
}

std::string WeightKey(std::string_view name) { return std::string(name); }

std::string MomentKey(std::string_view name, std::string_view moment) {
  return fmt::format("{}{}.{}", kOptimizerState, moment, name);
}

std::string MainWeightKey(std::string_view name, const ChosenForms& forms) {
  const bool is_in_model_space = IsChosen(forms, kOptimizerOption, kModelSpace);
  return MomentKey(name, is_in_model_space ? kMainWeightInModelSpace : kMainWeight);
}

Result<RunEntries> EntriesOfRun(RunRequest& request) {
  CKPT_ASSIGN_OR_RETURN(FormedRun formed, FormRun(request));
  PickleWriter common(Dialect::kWeightsOnly);
  WriteRunState(request.run, formed.experts, formed.form, common);
  formed.entries.objects.push_back({std::string(kCommonKey), {common.Take()}});
  return std::move(formed.entries);
}

std::vector<Problem> WarnOfOptimizer(const TrainingRun& run, const ChosenForms& forms) {
  std::vector<Problem> warnings;
  const layout::Configuration args(run.args.begin(), run.args.end());
  const RunArguments asked(args);
  if (asked.Has("use_distributed_optimizer") && !asked.IsTrue("use_distributed_optimizer")) {
    warnings.push_back(Warning(ErrorKind::kUnsupported,
                               "the run's optimizer is not distributed, and the target's is"));
    warnings.back().hint = "Megatron loads the target where its use_distributed_optimizer is on";
  }
  const layout::Configuration sizes(run.rank_sizes.begin(), run.rank_sizes.end());
  const bool are_apart = RunArguments(sizes).Number("expert_model_parallel_size").value_or(1) > 1;
  // Buffers say themselves who updates experts.
  if (are_apart && !forms.contains(kExpertOption) &&
      !IsChosen(forms, kOptimizerOption, kDpReshardable)) {
    warnings.push_back(Warning(ErrorKind::kUnsupported,
                               "the run's experts had an optimizer of their own, and have not in "
                               "the target"));
    warnings.back().hint =
        "with expert parallelism Megatron asks for ckpt-convert --expert-optimizer separate";
  }
  return warnings;
}

Result<WritePlan> PlanRun(RunRequest request) {
  dcp::WriterOptions options = dcp::OptionsOfRun(request);
  CKPT_ASSIGN_OR_RETURN(FormedRun formed, FormRun(request));
  RunEntries& entries = formed.entries;
  options.objects = std::move(entries.objects);
  options.chunk_ends = std::move(formed.chunk_ends);
  options.grids = GridsOfMegatron(
      entries.tensors, layout::Configuration(request.run.args.begin(), request.run.args.end()));
  if (formed.form == kModelSpace) {
    options.flattened = FlattenOptimizer(entries.tensors, options.grids);
  }
  const auto write_common = [&](PickleWriter& pickle) {
    WriteRunState(request.run, formed.experts, formed.form, pickle);
  };
  const Content content = {.is_compat = !IsChosen(request.forms, kGenerationOption, kSince019),
                           .directory = "",
                           .write_common = write_common,
                           .side_files = std::move(request.side_files),
                           .bridged = megatron::IsOfBridge(request.forms) ? &request.run : nullptr};
  CKPT_ASSIGN_OR_RETURN(WritePlan plan, Plan(std::move(entries.tensors), request.objects, content,
                                             std::move(options)));
  plan.packed = std::move(entries.packed);
  return plan;
}

}  // namespace ckpt::torch_dist
