// The other half of the registry: from tensors and side files to every file of a new checkpoint.
#ifndef CKPT_FORMATS_CREATE_H_
#define CKPT_FORMATS_CREATE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/value.h"
#include "core/manifest/manifest.h"
#include "formats/registry.h"

namespace ckpt {

struct SideText {
  std::string name;
  std::string content;
};

// What a new checkpoint shall hold. A format uses what it has a place for.
struct CreateRequest {
  std::vector<TargetTensor> tensors;
  std::vector<WriteCopy> side_files;  // named relative to the repository they come from
  std::vector<SideText> side_texts;   // side files of new content
  // Files to write again as they once were (safetensors); empty: packed anew.
  std::vector<ManifestShard> shards;
  std::uint64_t max_file_bytes = 0;    // 0: the format's default
  int files = 0;                       // data files; 0: by size
  std::optional<int> zstd_level = {};  // compress tensors; nothing: store them as they are
  // The index of the files above as it once was: written again if it still tells the truth.
  std::string original_index;
  bool is_cast = false;  // some tensor has another dtype than it had there
  // What Megatron stores as `args`: names and plain values. Called only for formats that store them.
  std::function<Result<std::vector<std::pair<std::string, layout::Value>>>()> run_args = nullptr;
};

struct CreatePlan {
  WritePlan plan;
  // Where in the target the checkpoint's own directory is, without slashes at its ends; empty: the target itself.
  std::string checkpoint_directory;
};

// Errors: kUnsupported (a format that this build cannot write), kUsage (compression in a format that has none), and those
//         of the format's planner.
Result<CreatePlan> PlanCheckpoint(std::string_view format, CreateRequest request);

// How the files of a checkpoint are laid out, so that they can be written again as they are; empty for formats whose
// files have no names of their own to keep.
[[nodiscard]] std::vector<ManifestShard> DescribeShards(const OpenedCheckpoint& checkpoint);

}  // namespace ckpt

#endif  // CKPT_FORMATS_CREATE_H_
