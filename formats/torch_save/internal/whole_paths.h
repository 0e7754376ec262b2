// What a file of ours says of values that are one entry each, although a walk would take them
// apart.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_WHOLE_PATHS_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_WHOLE_PATHS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"

namespace ckpt::torch_save {

// [["common_state"], ["optim", "param_groups", 0]]: each as core/checkpoint/entry_path_json.h says.
// REQUIRES: all of them HasJson.
std::string FormatWholePaths(std::span<const EntryPath> paths);

// `name` appears in errors. Errors: kBadMetadata, kResource.
Result<std::vector<EntryPath>> ParseWholePaths(std::string_view text, std::string_view name);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_WHOLE_PATHS_H_
