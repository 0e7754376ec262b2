#include "converters/verbs/internal/files_beside.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace ckpt {
namespace {

// A run that goes on where another was interrupted may find what that one has moved there: files of
// the same sizes. Their bytes are compared when its own are there.
Status CheckNoneBeside(Storage& storage, const WritePlan& plan, const ConvertOptions& options) {
  const bool goes_on = options.resume || options.finalize;
  Status status;
  for (const WriteFile& file : plan.files) {
    const Path path = options.target.parent_path() / file.name;
    if (path == options.target) continue;
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
    if (stat.type == FileType::kMissing) continue;
    const bool is_as_planned =
        stat.type == FileType::kRegular && stat.size_bytes == file.size_bytes;
    if (goes_on && is_as_planned) continue;
    status.Add(Error(ErrorKind::kAlreadyExists, "a file that the target needs beside it exists")
                   .File(path.string())
                   .Hint("choose another name, replace it with ckpt-convert --overwrite, or remove "
                         "it yourself"));
  }
  return status;
}

// The directory may not be there yet.
Result<std::vector<DirectoryEntry>> ListAround(Storage& storage, const Path& target) {
  Path directory = target.parent_path();
  if (directory.empty()) directory = ".";
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory));
  if (stat.type != FileType::kDirectory) return std::vector<DirectoryEntry>();
  return storage.List(directory);
}

}  // namespace

Result<std::vector<std::string>> NamesInUse(Storage& storage, const Format& format,
                                            const Path& target) {
  std::vector<std::string> names;
  if (format.is_part == nullptr) return names;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(target));
  if (stat.type != FileType::kRegular) return names;
  const Result<std::unique_ptr<CheckpointSource>> opened = OpenAs(format, storage, target);
  if (opened.ok()) {
    const auto& files = (*opened)->index().files();
    names.assign(files.begin(), files.end());
  } else if (IsOfSystem(opened.status().kind())) {
    return opened.status();
  } else {
    CKPT_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, ListAround(storage, target));
    for (DirectoryEntry& entry : entries) names.push_back(std::move(entry.name));
  }
  return names;
}

Result<FilesBeside> CheckBeside(Storage& storage, const Format& format, const WritePlan& plan,
                                const ConvertOptions& options) {
  FilesBeside beside;
  if (!options.overwrite || format.is_part == nullptr) {
    CKPT_RETURN_IF_ERROR(CheckNoneBeside(storage, plan, options));
    return beside;
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> in_use,
                        NamesInUse(storage, format, options.target));
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                        ListAround(storage, options.target));
  Status status;
  for (const DirectoryEntry& entry : entries) {
    const Path path = options.target.parent_path() / entry.name;
    if (path == options.target) continue;
    const bool is_planned =
        std::ranges::find(plan.files, entry.name, &WriteFile::name) != plan.files.end();
    Result<bool> is_part = format.is_part(storage, options.target, path);
    if (!is_part.ok()) {
      // A target of one file has no use for the name, but must not leave a part of the old one
      // there.
      const bool may_be_part = IsUnread(is_part.status().kind());
      if (may_be_part || plan.files.size() > 1) status.Add(std::move(is_part).status());
    } else if (!is_planned && *is_part) {
      beside.removed.push_back(entry.name);
    } else if (is_planned && std::ranges::find(in_use, entry.name) == in_use.end()) {
      beside.replaced.insert(entry.name);
    } else if (is_planned) {
      status.Add(Error(ErrorKind::kAlreadyExists,
                       "the target that is to be replaced may show a file of this name")
                     .File(path.string())
                     .Hint("choose another name, or remove it yourself"));
    }
  }
  CKPT_RETURN_IF_ERROR(status);
  return beside;
}

}  // namespace ckpt
