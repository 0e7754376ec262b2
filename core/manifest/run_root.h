// The root directory that holds the checkpoints of a run: what checking and replacing one must
// know.
#ifndef CKPT_CORE_MANIFEST_RUN_ROOT_H_
#define CKPT_CORE_MANIFEST_RUN_ROOT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt {

// A convention for such a directory. Formats that have one describe it. No function is null.
struct RunRoot {
  // The file in it that names the checkpoint to resume from (IsTracker).
  std::string_view tracker_name;
  // A file of checkpoints, and the name of its copy beside the tracker: that of the checkpoint that
  // the tracker names. Empty: there is none. A checkpoint need not have it.
  std::string_view copied_file = {};
  std::string_view copy_name = {};
  // The directory in it for weights that do not come from a run.
  std::string_view weights_directory;
  // The directory in it for what a run saved after so many iterations.
  std::string (*run_directory)(std::int64_t iteration) = nullptr;
  // Whether a tracker can have this content, whichever program wrote it.
  bool (*is_tracker_text)(std::string_view text) = nullptr;
  // The content of a tracker that names this directory.
  std::string (*tracker_text)(std::string_view directory) = nullptr;
  // Whether a file of the root, by its relative name, belongs to a checkpoint of a run.
  bool (*is_of_run)(std::string_view name) = nullptr;
};

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_RUN_ROOT_H_
