// The directory around the checkpoints of a run, as far as checking and replacing one must know it.
#ifndef CKPT_CORE_MANIFEST_RUN_ROOT_H_
#define CKPT_CORE_MANIFEST_RUN_ROOT_H_

#include <string>
#include <string_view>

namespace ckpt {

// What a convention says of such a directory; formats that have one describe it. No function is null.
struct RunRoot {
  // The file in it that names the checkpoint to go on from (IsTracker).
  std::string_view tracker_name;
  // The directory in it of weights that come from no run.
  std::string_view weights_directory;
  // Whether a tracker can have this content, whoever wrote it.
  bool (*is_tracker_text)(std::string_view text) = nullptr;
  // What a tracker says that names this directory.
  std::string (*tracker_text)(std::string_view directory) = nullptr;
  // Whether a file of the root, by its relative name, belongs to a checkpoint of a run.
  bool (*is_of_run)(std::string_view name) = nullptr;
};

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_RUN_ROOT_H_
