// The folder that an experiment leaves its results in.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_FOLDER_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_FOLDER_H_

#include <string>
#include <string_view>
#include <utility>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"

namespace ckpt::train {

class ExperimentFolder {
 public:
  // Makes the folder, or empties one that an earlier experiment left. Nothing else is ever removed.
  // `storage` outlives it.
  //
  // Errors: kAlreadyExists (a folder with anything that no experiment made, or no folder),
  // kNoSpace, kIo.
  static Result<ExperimentFolder> Open(Storage& storage, const Path& path);

  [[nodiscard]] Path data() const { return path_ / "data.jsonl"; }
  [[nodiscard]] Path report() const { return path_ / "report.md"; }
  [[nodiscard]] Path document() const { return path_ / "report.json"; }
  [[nodiscard]] Path figure() const { return path_ / "curves.svg"; }
  // Of the run of a case, or of the source run.
  [[nodiscard]] Path metrics(const std::string& run) const {
    return path_ / "metrics" / (run + ".jsonl");
  }
  [[nodiscard]] Path checkpoints(const std::string& run) const {
    return path_ / "checkpoints" / run;
  }

  // Errors: kNoSpace, kIo.
  Status Write(const Path& file, std::string_view content);
  Status RemoveCheckpoints();

 private:
  ExperimentFolder(Storage& storage, Path path) : storage_(&storage), path_(std::move(path)) {}

  Storage* storage_;
  Path path_;
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_FOLDER_H_
