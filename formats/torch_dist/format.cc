#include "formats/torch_dist/format.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "formats/dcp/format.h"
#include "formats/megatron/bridge_files.h"
#include "formats/megatron/dist_checkpoint.h"
#include "formats/megatron/root.h"
#include "formats/torch_dist/internal/param_groups.h"
#include "formats/torch_dist/internal/read_args.h"
#include "formats/torch_dist/internal/read_run.h"
#include "formats/torch_dist/internal/source.h"
#include "formats/torch_dist/internal/unpacked_buffers.h"
#include "formats/torch_dist/internal/writer.h"

namespace ckpt::torch_dist {
namespace {

constexpr std::string_view kName = "torch_dist";

Result<std::optional<Path>> Recognise(const Place& place) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::string> backend, megatron::ShardedBackend(place));
  if (backend == kName) return std::optional(place.path);
  // Megatron-Core writes metadata.json last.
  if (!backend && place.names.Has(".metadata") && place.names.Has(kCommonFile)) {
    return Error(ErrorKind::kIncomplete, "no metadata.json: an interrupted torch_dist save")
        .File(place.path.string())
        .Hint("ckpt-inspect --format dcp reads the tensors that are there");
  }
  return std::optional<Path>();
}

// The common state is a file in a checkpoint of Megatron-Core. Elsewhere it is an object, which
// only a conversion of such a checkpoint writes.
bool HasKeysOf(const CheckpointIndex& index) { return index.FindObject(kCommonKey) != nullptr; }

constexpr std::array kOptions = {
    FormatOption{.name = kGenerationOption,
                 .purpose = "Which versions of its software can read it",
                 .values = kGenerations},
    FormatOption{.name = kExpertOption,
                 .purpose =
                     "Whether a run's experts have an optimizer of their own, as with expert "
                     "parallelism",
                 .values = kExpertForms,
                 .is_of_run = true},
    FormatOption{.name = kOptimizerOption,
                 .purpose = "In which of Megatron's forms a run's optimizer is stored; "
                            "fully_sharded_model_space is for Megatron-Core up to 0.15, "
                            "dp_reshardable for the tensor, pipeline and expert ranks of the run",
                 .values = kOptimizerForms,
                 .of_conversions = kDpReshardable,
                 .is_of_run = true},
    FormatOption{.name = megatron::kTreeOption,
                 .purpose = megatron::kTreePurpose,
                 .values = megatron::kTrees}};

constexpr RunFormat kRun = {.weight_key = &WeightKey,
                            .moment_key = &MomentKey,
                            .entries = &EntriesOfRun,
                            .plan = &PlanRun,
                            .holds_run = &HoldsRun,
                            .holds_groups = &HoldsGroups,
                            .by_parameter = &UnpackBuffers,
                            .parts_of_buffers = &PartsOfBuffers,
                            .find_tensors = &FindTensors,
                            .read = &ReadRun,
                            .forget_groups = &ForgetGroups,
                            .warn = &WarnOfOptimizer,
                            .main_weight_key = &MainWeightKey,
                            .keeps_padding = true};

}  // namespace

constinit const Format kFormat = {.name = kName,
                                  .usual_naming = kName,
                                  .built_on = &dcp::kFormat,
                                  .root = &megatron::kRunRoot,
                                  .tokenizer_directory = megatron::kTokenizerDirectory,
                                  .options = kOptions,
                                  .can_compress = true,
                                  .directory_signs = kMetadataFile,
                                  .recognise = &Recognise,
                                  .has_keys_of = &HasKeysOf,
                                  .open = &OpenSource,
                                  .plan_weights = &PlanRelease,
                                  .run = &kRun,
                                  .read_args = &ReadArgs};

}  // namespace ckpt::torch_dist
