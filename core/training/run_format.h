// How a format stores a whole training run, both ways: weights, what the optimizer keeps of them,
// and the run itself.
#ifndef CKPT_CORE_TRAINING_RUN_FORMAT_H_
#define CKPT_CORE_TRAINING_RUN_FORMAT_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/plan/follow_chunks.h"
#include "core/training/training_run.h"

namespace ckpt {

struct RunRequest {
  std::vector<TargetTensor> tensors;
  // Parallel: the row blocks of each, and which process writes them (RowsFromFile::file).
  std::vector<std::vector<RowsFromFile>> placed;
  // Its groups' parameters under the format's names, without prefix.
  TrainingRun run;
  std::vector<WriteCopy> side_files;  // named relative to the repository they come from
};

// A part of a Format (formats/format.h).
struct RunFormat {
  // Keys of a weight and of what the optimizer keeps for it; `name` is the tensor's in this format,
  // without prefix.
  std::string (*weight_key)(std::string_view name);
  std::string (*moment_key)(std::string_view name, std::string_view moment);
  // Entries that are tensors and belong to no parameter.
  std::vector<MemoryTensor> (*run_tensors)(const TrainingRun& run);
  // Every file of a checkpoint's directory, without a root around it. Errors: those of the format's
  // planner.
  Result<WritePlan> (*plan)(RunRequest request);
  // The way back. Errors: kMissing (the checkpoint holds no run, or not all of one), kUnsupported,
  // kBadMetadata.
  Result<StoredRun> (*read)(const CheckpointSource& source);
};

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_RUN_FORMAT_H_
