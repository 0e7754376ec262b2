// A directory that is filled beside its final name and gets that name in one atomic step; or a file
// that is written in such a directory.
#ifndef CKPT_CORE_IO_STAGED_DIRECTORY_H_
#define CKPT_CORE_IO_STAGED_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// Commit protocol:
//   1. missing directories above the target are created, each made durable before the next;
//   2. everything is written below `<target>.ckptkit-partial`, each file synced;
//   3. `Publish` syncs every directory below it, then renames it to `<target>` (with kReplace:
//      exchanges the two and removes the old one afterwards), then syncs the parent.
// If the run is killed before the rename, a reader of `<target>` sees what was there before; after
// it, the complete new directory. If it is killed between the exchange and the last sync,
// `<target>.ckptkit-partial` is the old checkpoint, and a power failure may still bring its name
// back. Therefore the next `Open` syncs the parent first. `<target>.ckptkit-partial` is locked from
// `Open` to the end of this object, so that two runs never write the same target.
class StagedDirectory {
 public:
  enum class IfTargetExists : std::uint8_t { kFail, kReplace };
  enum class IfStagingExists : std::uint8_t { kDiscard, kKeep };

  struct Options {
    IfTargetExists if_target_exists = IfTargetExists::kFail;
    // kFail only: what people can do about a target that exists.
    std::string hint_if_exists = "choose another name";
    IfStagingExists if_staging_exists = IfStagingExists::kDiscard;
    // kReplace only: an error that this returns for the existing target becomes an error of `Open`
    // and `Publish`. If empty, every directory may be replaced.
    std::function<Status(Storage& storage, const Path& target)> may_replace = {};
    // The target is a file, not a directory: `Publish` gives its name to the file of that name in
    // the staged directory, after all others of that directory were moved beside it. A file that is
    // there already is an error; with kKeep it may be what an interrupted run moved, and is fine if
    // it has the same bytes.
    bool publishes_one_file = false;
    // Names of files beside such a target that `Publish` replaces instead. A target that is there
    // must not need them.
    std::set<std::string, std::less<>> replaced_beside = {};
    // Names of files beside it that `Publish` removes when the new target is durable.
    std::vector<std::string> removed_beside = {};
  };

  // Errors: kAlreadyExists (the target exists and may not be replaced, another run is writing it,
  // or a link or a file has its name), kUsage (the target is not a directory name: "", ".", ".."),
  // those of `may_replace`, kNoSpace, kIo.
  static Result<StagedDirectory> Open(Storage& storage, const Path& target, Options options);

  // The directory to write into.
  [[nodiscard]] const Path& path() const { return staging_; }
  [[nodiscard]] const Path& target() const { return target_; }
  // Whether an earlier, interrupted run left its files here (kKeep only).
  [[nodiscard]] bool resumed() const { return resumed_; }

  // Do not use the object after this call.
  Status Publish();

 private:
  StagedDirectory(Storage& storage, Path target, Path staging, Options options)
      : storage_(&storage),
        target_(std::move(target)),
        staging_(std::move(staging)),
        options_(std::move(options)) {}

  // Locks the directory that is to be replaced; null if there is none.
  Result<std::unique_ptr<DirectoryLock>> LockTarget();
  Status LockStaging();
  // Whether there is a file to replace.
  Result<bool> CheckTargetFile();
  // Moves one of the other files of the staged directory.
  Status PublishBeside(const std::string& name);
  Status PublishFile();

  Storage* storage_;
  Path target_;
  Path staging_;
  Options options_;
  std::unique_ptr<DirectoryLock> lock_;  // of the staging directory
  bool resumed_ = false;
};

}  // namespace ckpt

#endif  // CKPT_CORE_IO_STAGED_DIRECTORY_H_
