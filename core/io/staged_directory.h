// A directory that is filled beside its final name and appears under it by one atomic step.
#ifndef CKPT_CORE_IO_STAGED_DIRECTORY_H_
#define CKPT_CORE_IO_STAGED_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// Commit protocol:
//   1. missing directories above the target are created, each made durable before the next;
//   2. everything is written below `<target>.ckptkit-partial`, each file synced;
//   3. `Publish` syncs every directory below it, then renames it to `<target>` (with kReplace:
//      exchanges the two and removes the old one afterwards), then syncs the parent.
// Killed before the rename, a reader of `<target>` sees what was there before; after it, the new
// whole. Killed between the exchange and the last sync, `<target>.ckptkit-partial` is the old checkpoint, and
// a power failure may yet bring its name back: whoever opens it next syncs the parent first.
// `<target>.ckptkit-partial` is locked from `Open` to the end of this object, so that two runs never
// write the same target.
class StagedDirectory {
 public:
  enum class IfTargetExists : std::uint8_t { kFail, kReplace };
  enum class IfStagingExists : std::uint8_t { kDiscard, kKeep };

  struct Options {
    IfTargetExists if_target_exists = IfTargetExists::kFail;
    IfStagingExists if_staging_exists = IfStagingExists::kDiscard;
    // kReplace only: what this says about the existing target is an error of `Open` and `Publish`.
    // Empty: every directory may be replaced.
    std::function<Status(Storage& storage, const Path& target)> may_replace = {};
  };

  // Errors: kAlreadyExists (the target is there and may not be replaced, another run is writing it,
  // or a link or a file is in the way), kUsage (the target is no name of a directory: "", ".",
  // ".."), those of `may_replace`, kNoSpace, kIo.
  static Result<StagedDirectory> Open(Storage& storage, const Path& target, Options options);

  // Where to write.
  [[nodiscard]] const Path& path() const { return staging_; }
  [[nodiscard]] const Path& target() const { return target_; }
  // Whether an earlier, interrupted run left its files here (kKeep only).
  [[nodiscard]] bool resumed() const { return resumed_; }

  // Ends the use of this.
  Status Publish();

 private:
  StagedDirectory(Storage& storage, Path target, Path staging, Options options)
      : storage_(&storage),
        target_(std::move(target)),
        staging_(std::move(staging)),
        options_(std::move(options)) {}

  // The lock of what is to be replaced; null if nothing is there.
  Result<std::unique_ptr<DirectoryLock>> LockTarget();
  Status LockStaging();

  Storage* storage_;
  Path target_;
  Path staging_;
  Options options_;
  std::unique_ptr<DirectoryLock> lock_;  // of the staging directory
  bool resumed_ = false;
};

}  // namespace ckpt

#endif  // CKPT_CORE_IO_STAGED_DIRECTORY_H_
