#include "formats/fsdp_dtensor/format.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "formats/dcp/format.h"
#include "formats/dcp/source.h"
#include "formats/fsdp_dtensor/internal/read_run.h"
#include "formats/fsdp_dtensor/internal/run_objects.h"
#include "formats/fsdp_dtensor/internal/writer.h"
#include "formats/megatron/bridge_files.h"
#include "formats/megatron/root.h"

namespace ckpt::fsdp_dtensor {
namespace {

constexpr std::string_view kName = "fsdp_dtensor";

template <typename Entry>
bool HasKeyPrefix(std::span<const Entry> entries, std::string_view prefix) {
  const auto it = std::lower_bound(entries.begin(), entries.end(), prefix,
                                   [](const Entry& e, std::string_view p) { return e.key < p; });
  return it != entries.end() && it->key.starts_with(prefix);
}

bool HasKeysOf(const CheckpointIndex& index) {
  constexpr std::array<std::string_view, 4> kPrefixes = {"model.module.", "model0.module.",
                                                         "optimizer.param_to_group_meta.",
                                                         "optimizer.state.module.module.module."};
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) {
    return HasKeyPrefix(index.tensors(), prefix) || HasKeyPrefix(index.objects(), prefix);
  });
}

Result<PlannedCheckpoint> PlanWeights(WeightsRequest request) {
  PlannedCheckpoint planned;
  std::vector<std::pair<std::string, layout::Value>> args;
  if (request.run_args) {
    CKPT_ASSIGN_OR_RETURN(args, request.run_args());
  }
  CKPT_ASSIGN_OR_RETURN(planned.plan,
                        PlanRelease(std::move(request.tensors),
                                    {.args = std::move(args),
                                     .side_files = std::move(request.side_files),
                                     .files = request.files,
                                     .max_file_bytes = request.max_file_bytes,
                                     .zstd_level = request.zstd_level,
                                     .is_of_bridge = megatron::IsOfBridge(request.forms)}));
  planned.checkpoint_directory = megatron::kReleaseDirectory;
  return planned;
}

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointSource> source, dcp::OpenSource(storage, path));
  return megatron::WithBridgeFiles(std::move(source), storage, path);
}

// Forms differ in the files around the checkpoint alone.
EntryPath PathInAnyForm(const std::string& key, const ChosenForms& /*forms*/) {
  return RunPath(key);
}

constexpr std::array kOptions = {FormatOption{
    .name = megatron::kTreeOption, .purpose = megatron::kTreePurpose, .values = megatron::kTrees}};

constexpr RunFormat kRun = {.weight_key = &WeightKey,
                            .moment_key = &MomentKey,
                            .run_tensors = &RunTensors,
                            .entries = &EntriesOfRun,
                            .path_of = &PathInAnyForm,
                            .plan = &PlanRun,
                            .holds_run = &HoldsRun,
                            .find_tensors = &FindTensors,
                            .read = &ReadRun,
                            .keeps_padding = true};

}  // namespace

constinit const Format kFormat = {.name = kName,
                                  .usual_naming = kName,
                                  .built_on = &dcp::kFormat,
                                  .root = &megatron::kRunRoot,
                                  .tokenizer_directory = megatron::kTokenizerDirectory,
                                  .options = kOptions,
                                  .can_compress = true,
                                  .has_keys_of = &HasKeysOf,
                                  .open = &OpenSource,
                                  .complete = &megatron::WithBridgeFiles,
                                  .plan_weights = &PlanWeights,
                                  .run = &kRun,
                                  .read_args = &ReadArgs};

}  // namespace ckpt::fsdp_dtensor
