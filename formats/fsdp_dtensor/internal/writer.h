// Plans what Megatron-FSDP's `--load` takes: weights outside any run, or the whole state of one.
#ifndef CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_WRITER_H_
#define CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/value.h"
#include "core/training/run_format.h"

namespace ckpt::fsdp_dtensor {

struct WriterOptions {
  // Megatron's `args`: an argparse.Namespace of plain values.
  std::vector<std::pair<std::string, layout::Value>> args;
  std::vector<WriteCopy> side_files;  // go to release/hf_assets under their names
  int files = 0;                      // as in dcp::WriterOptions
  std::uint64_t max_file_bytes = 0;
  std::optional<int> zstd_level = {};
  bool is_of_bridge = false;  // with the files of Megatron-Bridge
};

//   latest_checkpointed_iteration.txt   "release"
//   release/.metadata, __0_<n>.distcp   the tensors, and the objects that Megatron asks for before
//                                       any weight: args, iteration (0), checkpoint_version (3.0)
//   release/hf_assets/                  the side files
//
// Errors: those of dcp::PlanDcp.
Result<WritePlan> PlanRelease(std::vector<TargetTensor> tensors, WriterOptions options);

// A run for a container of another format: its tensors and RunObjects(run). Errors: none.
Result<RunEntries> EntriesOfRun(RunRequest& request);

// A checkpoint directory of a run, without the root around it: `.metadata` and
// `__<process>_0.distcp` with these entries, hf_assets/ with the side files.
//
// Errors: those of dcp::PlanDcp.
Result<WritePlan> PlanRun(RunRequest request);

}  // namespace ckpt::fsdp_dtensor

#endif  // CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_WRITER_H_
