#include "core/io/staged_directory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/units.h"
#include "core/io/internal/durable_directories.h"
#include "core/io/staging_name.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kComparedBytes = kMiB;  // read at a time

Status SyncTree(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  for (const DirectoryEntry& entry : entries) {
    if (entry.type == FileType::kDirectory && !entry.is_link) {
      CKPT_RETURN_IF_ERROR(SyncTree(storage, directory / entry.name));
    }
  }
  return storage.SyncDirectory(directory);
}

Status CheckNamesDirectory(const Path& target) {
  const Path name = target.filename();
  if (!name.empty() && name != "." && name != ".." && name != "/") return OkStatus();
  return Error(ErrorKind::kUsage, "the target is not a name of a directory")
      .Actual(target.string());
}

Status CheckSameBytes(Storage& storage, const Path& ours, const Path& theirs) {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> a, storage.Open(ours));
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> b, storage.Open(theirs));
  bool is_same = a->size_bytes() == b->size_bytes();
  Bytes piece_of_a(kComparedBytes);
  Bytes piece_of_b(kComparedBytes);
  for (std::uint64_t at = 0; is_same && at < a->size_bytes(); at += kComparedBytes) {
    const std::uint64_t size = std::min(kComparedBytes, a->size_bytes() - at);
    piece_of_a.resize(size);
    piece_of_b.resize(size);
    CKPT_RETURN_IF_ERROR(a->ReadAt(at, piece_of_a));
    CKPT_RETURN_IF_ERROR(b->ReadAt(at, piece_of_b));
    is_same = piece_of_a == piece_of_b;
  }
  if (is_same) return OkStatus();
  return Error(ErrorKind::kAlreadyExists, "a file that the target needs beside it has other bytes")
      .File(theirs.string())
      .Hint("choose another name, or remove it yourself");
}

// Of a target that exists.
Status CheckReplaceable(Storage& storage, const Path& target,
                        const StagedDirectory::Options& options) {
  if (options.if_target_exists == StagedDirectory::IfTargetExists::kFail) {
    return Error(ErrorKind::kAlreadyExists, "the target exists")
        .File(target.string())
        .Hint(options.hint_if_exists);
  }
  return options.may_replace ? options.may_replace(storage, target) : OkStatus();
}

}  // namespace

Result<StagedDirectory> StagedDirectory::Open(Storage& storage, const Path& target,
                                              Options options) {
  const Path clean = WithoutTrailingSlash(target);
  CKPT_RETURN_IF_ERROR(CheckNamesDirectory(clean));
  StagedDirectory staged(storage, clean, StagingOf(clean), std::move(options));
  CKPT_RETURN_IF_ERROR(staged.options_.publishes_one_file ? staged.CheckTargetFile().status()
                                                          : staged.LockTarget().status());
  CKPT_RETURN_IF_ERROR(staged.LockStaging());
  return staged;
}

Result<std::unique_ptr<DirectoryLock>> StagedDirectory::LockTarget() {
  Result<std::unique_ptr<DirectoryLock>> lock = storage_->Lock(target_);
  if (!lock.ok()) {
    if (lock.status().kind() == ErrorKind::kNotFound) return std::unique_ptr<DirectoryLock>();
    return lock;
  }
  CKPT_RETURN_IF_ERROR(CheckReplaceable(*storage_, target_, options_));
  return lock;
}

Status StagedDirectory::LockStaging() {
  Result<std::unique_ptr<DirectoryLock>> lock = storage_->Lock(staging_);
  const bool is_new = !lock.ok() && lock.status().kind() == ErrorKind::kNotFound;
  if (is_new) {
    CKPT_RETURN_IF_ERROR(MakeDurableDirectories(*storage_, staging_.parent_path()));
    CKPT_RETURN_IF_ERROR(storage_->MakeDirectories(staging_));
    lock = storage_->Lock(staging_);
  }
  CKPT_ASSIGN_OR_RETURN(lock_, std::move(lock));
  if (is_new) return OkStatus();
  // The staging directory may hold the old checkpoint, of a run that exchanged the two and was
  // killed before the exchange was durable. None of it may be removed while a power failure could
  // bring its name back.
  CKPT_RETURN_IF_ERROR(storage_->SyncDirectory(staging_.parent_path()));
  resumed_ = options_.if_staging_exists == IfStagingExists::kKeep;
  if (resumed_) return OkStatus();
  // Remove the entries, not the directory: the lock is on this very directory.
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> leftovers, storage_->List(staging_));
  for (const DirectoryEntry& entry : leftovers) {
    CKPT_RETURN_IF_ERROR(storage_->RemoveAll(staging_ / entry.name));
  }
  return OkStatus();
}

Result<bool> StagedDirectory::CheckTargetFile() {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage_->Stat(target_));
  if (stat.type == FileType::kMissing) return false;
  if (stat.type != FileType::kRegular) {
    return Error(ErrorKind::kAlreadyExists,
                 stat.type == FileType::kDirectory
                     ? "the target is to be a file, and a directory has its name"
                     : "the target is to be a file, and a device or a pipe has its name")
        .File(target_.string())
        .Hint("choose another name");
  }
  CKPT_RETURN_IF_ERROR(CheckReplaceable(*storage_, target_, options_));
  return true;
}

Status StagedDirectory::PublishBeside(const std::string& name) {
  const Path ours = staging_ / name;
  const Path there = target_.parent_path() / name;
  if (options_.replaced_beside.contains(name)) return storage_->Exchange(ours, there);
  if (options_.if_staging_exists == IfStagingExists::kKeep) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage_->Stat(there));
    if (stat.type == FileType::kRegular) {
      CKPT_RETURN_IF_ERROR(CheckSameBytes(*storage_, ours, there));
      return storage_->Exchange(ours, there);  // these are known to be durable
    }
  }
  return storage_->Rename(ours, there);
}

Status StagedDirectory::PublishFile() {
  const std::string name = target_.filename().string();
  // A file that moved is safe when the directory that lost it and the one that got it are.
  const auto sync = [&]() -> Status {
    CKPT_RETURN_IF_ERROR(storage_->SyncDirectory(staging_));
    return storage_->SyncDirectory(target_.parent_path());
  };
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage_->List(staging_));
  for (const DirectoryEntry& entry : entries) {
    if (entry.name == name) continue;
    CKPT_RETURN_IF_ERROR(PublishBeside(entry.name));
  }
  CKPT_RETURN_IF_ERROR(sync());
  CKPT_ASSIGN_OR_RETURN(const bool replaces, CheckTargetFile());
  if (replaces) {
    CKPT_RETURN_IF_ERROR(storage_->Exchange(staging_ / name, target_));
  } else {
    CKPT_RETURN_IF_ERROR(storage_->Rename(staging_ / name, target_));
  }
  CKPT_RETURN_IF_ERROR(sync());
  for (const std::string& old : options_.removed_beside) {
    CKPT_RETURN_IF_ERROR(storage_->RemoveAll(target_.parent_path() / old));
  }
  if (!options_.removed_beside.empty()) CKPT_RETURN_IF_ERROR(sync());
  return storage_->RemoveAll(staging_);
}

Status StagedDirectory::Publish() {
  CKPT_RETURN_IF_ERROR(SyncTree(*storage_, staging_));
  if (options_.publishes_one_file) return PublishFile();
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<DirectoryLock> replaced, LockTarget());
  if (replaced != nullptr) {
    CKPT_RETURN_IF_ERROR(storage_->Exchange(staging_, target_));
  } else {
    CKPT_RETURN_IF_ERROR(storage_->Rename(staging_, target_));
  }
  CKPT_RETURN_IF_ERROR(storage_->SyncDirectory(target_.parent_path()));
  // The old checkpoint now lies under the staging name. Remove it only after the new one is
  // durable.
  return replaced != nullptr ? storage_->RemoveAll(staging_) : OkStatus();
}

}  // namespace ckpt
