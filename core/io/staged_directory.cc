#include "core/io/staged_directory.h"

#include <utility>
#include <vector>

namespace ckpt {
namespace {

Status SyncTree(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  for (const DirectoryEntry& entry : entries) {
    if (entry.type == FileType::kDirectory) {
      CKPT_RETURN_IF_ERROR(SyncTree(storage, directory / entry.name));
    }
  }
  return storage.SyncDirectory(directory);
}

}  // namespace

Result<StagedDirectory> StagedDirectory::Open(Storage& storage, const Path& target,
                                              Options options) {
  // "out/" and "out" are the same target; a trailing slash would put the staging directory inside
  // it.
  Path clean = target.lexically_normal();
  if (clean.filename() == "." || clean.filename().empty()) clean = clean.parent_path();
  CKPT_ASSIGN_OR_RETURN(const FileStat existing, storage.Stat(clean));
  if (existing.type != FileType::kMissing && options.if_target_exists == IfTargetExists::kFail) {
    return Error(ErrorKind::kAlreadyExists, "the target exists")
        .File(clean.string())
        .Hint("choose another name, or pass --overwrite to replace it");
  }
  StagedDirectory staged(storage, clean, Path(clean.string() + ".partial"), options);
  CKPT_ASSIGN_OR_RETURN(const FileStat leftover, storage.Stat(staged.staging_));
  if (leftover.type != FileType::kMissing) {
    if (options.if_staging_exists == IfStagingExists::kDiscard) {
      CKPT_RETURN_IF_ERROR(storage.RemoveAll(staged.staging_));
    } else {
      staged.resumed_ = true;
    }
  }
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(staged.staging_));
  return staged;
}

Status StagedDirectory::Publish() {
  CKPT_RETURN_IF_ERROR(SyncTree(*storage_, staging_));
  CKPT_ASSIGN_OR_RETURN(const FileStat existing, storage_->Stat(target_));
  const bool replace =
      existing.type != FileType::kMissing && options_.if_target_exists == IfTargetExists::kReplace;
  if (replace) {
    CKPT_RETURN_IF_ERROR(storage_->Exchange(staging_, target_));
  } else {
    CKPT_RETURN_IF_ERROR(storage_->Rename(staging_, target_));
  }
  CKPT_RETURN_IF_ERROR(storage_->SyncDirectory(target_.parent_path()));
  // The old checkpoint now lies under the staging name; it goes only after the new one is durable.
  return replace ? storage_->RemoveAll(staging_) : OkStatus();
}

}  // namespace ckpt
