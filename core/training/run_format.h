// How a format stores a whole training run, both ways: weights, what the optimizer keeps of them,
// and the run itself.
#ifndef CKPT_CORE_TRAINING_RUN_FORMAT_H_
#define CKPT_CORE_TRAINING_RUN_FORMAT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/chosen_forms.h"
#include "core/checkpoint/empty_objects.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/plan/follow_chunks.h"
#include "core/training/training_run.h"

namespace ckpt {

// The hint where an optimizer is not understood. Like every hint of core, it names no tool: tools
// put it in their own words.
inline constexpr std::string_view kTakeWeightsAlone =
    "the weights can be taken alone, without the optimizer";

struct RunRequest {
  std::vector<TargetTensor> tensors = {};
  // Parallel: the row blocks of each, and which process writes them (RowsFromFile::file). Empty:
  // one process writes all.
  std::vector<std::vector<RowsFromFile>> placed = {};
  // Its groups' parameters under the format's names, without prefix.
  TrainingRun run = {};
  // What else lies beside it, under the format's keys (RunFormat::carries_objects).
  std::vector<PickledEntry> carried = {};
  std::vector<MemoryTensor> carried_tensors = {};  // the same, small ones
  // Where it stood in the nested object; others as `path_of` says. They make one object
  // (MakeOneObject), also if the format's keys are texts (StayApartAsTexts).
  EntryPaths carried_paths = {};
  std::vector<WriteCopy> side_files = {};  // named relative to the repository they come from
  std::vector<EmptyObjects> objects = {};  // of the tensors' naming
  ChosenForms forms = {};                  // of the format's
  // One process: as in WeightsRequest.
  int files = 0;
  std::uint64_t max_file_bytes = 0;
  std::optional<int> zstd_level = {};
};

// What a run is in one of a format's forms, whatever files it lies in.
struct RunEntries {
  std::vector<TargetTensor> tensors;             // those of the request, or buffers of them
  PackedParts packed = {};                       // of the buffers
  std::vector<MemoryTensor> known_tensors = {};  // small ones that follow from the run
  std::vector<PickledEntry> objects = {};        // what is not a tensor
};

// What a run is read for.
enum class RunDetail : std::uint8_t {
  kToResume,  // to go on with it: the schedule must be where the optimizer is
  kWhole,     // to store it elsewhere
};

// A part of a Format (formats/format.h). What does not say what null means is never null.
struct RunFormat {
  // Keys of a weight and of what the optimizer keeps for it; `name` is the tensor's in this format,
  // without prefix.
  std::string (*weight_key)(std::string_view name) = nullptr;
  std::string (*moment_key)(std::string_view name, std::string_view moment) = nullptr;
  // Entries that are tensors and belong to no parameter, such as random states. Null: none.
  std::vector<MemoryTensor> (*run_tensors)(const TrainingRun& run) = nullptr;
  // For a container of another format, which holds entries of any names: what they are, which takes
  // the request's tensors (null: a run is stored in this format alone), and where a flat key stands
  // in the nested state dict (null: on top). Errors: kUsage and kUnsupported (the run cannot have
  // this form).
  Result<RunEntries> (*entries)(RunRequest& request) = nullptr;
  EntryPath (*path_of)(const std::string& key, const ChosenForms& forms) = nullptr;
  // Every file of a checkpoint's directory, without a root around it. Errors: those of the format's
  // planner.
  Result<WritePlan> (*plan)(RunRequest request) = nullptr;
  // Whether a checkpoint holds anything of an optimizer, by its keys.
  bool (*holds_run)(const CheckpointIndex& index) = nullptr;
  // Whether it holds the groups of an optimizer that keeps nothing else, as SGD without momentum,
  // where keys do not say so. Null: they always do.
  bool (*holds_groups)(const CheckpointSource& source) = nullptr;
  // The checkpoint with a tensor for each parameter and moment, where it stores these in another
  // form; the source itself otherwise. Null: it always has. Errors: kUnsupported (it does not say
  // what belongs to which parameter), kMissing, kBadMetadata, and those of reading.
  Result<std::shared_ptr<const CheckpointSource>> (*by_parameter)(
      std::shared_ptr<const CheckpointSource> source) = nullptr;
  // Which parts of the tensors of a source that `by_parameter` gave lie where in buffers that the
  // checkpoint stores; those, too, that several ranks have. Null: it stores none.
  PackedParts (*parts_of_buffers)(const CheckpointSource& source) = nullptr;
  // What of a checkpoint's tensors an optimizer keeps, by their keys alone, of a source that
  // `by_parameter` gave. Errors: kMissing (a weight has one moment and lacks another), kUnsupported
  // (they are no tensors of parameters).
  Result<OptimizerTensors> (*find_tensors)(const CheckpointIndex& index) = nullptr;
  // The way back, of such a source, with these tensors. Errors: kMissing (the checkpoint holds no
  // run, or not all of one), kUnsupported, kBadMetadata.
  Result<StoredRun> (*read)(const CheckpointSource& source, RunDetail detail) = nullptr;
  // Leaves of `run.group_of` what a reader of the format knows of it, where parameters' groups are
  // not stored. Null: they are.
  void (*forget_groups)(TrainingRun& run) = nullptr;
  // What the format's own software refuses in these forms, although the run it was asked to go on
  // with may have been like that: warnings that name the way out. Null: nothing.
  std::vector<Problem> (*warn)(const TrainingRun& run, const ChosenForms& forms) = nullptr;
  // Whether objects that are no part of a run, such as the state of its program's scheduler, go
  // along to a target of this format.
  bool carries_objects = false;
  // Whether groups stand by themselves: they name frozen parameters, too (TrainingRun::frozen_of),
  // or none at all.
  bool names_frozen = false;
  // Key of a trained weight's exact value, beside the weight, in one of the format's forms. Null:
  // the weight itself is exact.
  std::string (*main_weight_key)(std::string_view name, const ChosenForms& forms) = nullptr;
  // Whether a run here has the rows that pad its vocabulary (`padded_vocab_size`): they take part
  // in its loss and are trained, so that it goes on as it was with them alone.
  bool keeps_padding = false;
};

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_RUN_FORMAT_H_
