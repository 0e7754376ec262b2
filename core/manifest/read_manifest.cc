#include "core/manifest/read_manifest.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "core/manifest/manifest_text.h"

namespace ckpt {
namespace {

constexpr std::string_view kNothingRepairs =
    "nothing else can prove or repair the files: take ckptkit.json from another copy of the "
    "checkpoint, or remove the ckptkit-parity files and continue without proof";

Result<bool> IsThere(Storage& storage, const Path& directory, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / std::string(name)));
  return stat.type != FileType::kMissing;
}

// Nothing if the file does not exist.
Result<std::optional<StoredManifest>> ReadOne(Storage& storage, const Path& directory,
                                              std::string_view name) {
  const Path path = directory / std::string(name);
  CKPT_ASSIGN_OR_RETURN(const bool is_there, IsThere(storage, directory, name));
  if (!is_there) return std::optional<StoredManifest>();
  CKPT_ASSIGN_OR_RETURN(std::string text, ReadSmallFile(storage, path, kMaxManifestBytes));
  CKPT_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, path.string()));
  return std::optional(StoredManifest{.text = std::move(text), .manifest = std::move(manifest)});
}

Status Missing(const Path& directory, std::string_view name) {
  return Error(ErrorKind::kMissingFile, name == kManifestName
                                            ? "the checkpoint's manifest is missing"
                                            : "the copy of the checkpoint's manifest is missing")
      .File((directory / std::string(name)).string())
      .Hint(kNothingRepairs);
}

// What is wrong with the copy, where the manifest itself is intact.
Result<std::optional<Problem>> CompareCopy(Storage& storage, const Path& directory,
                                           const StoredManifest& stored) {
  Result<std::optional<StoredManifest>> copy = ReadOne(storage, directory, kManifestCopyName);
  if (!copy.ok() && IsOfSystem(copy.status().kind())) return std::move(copy).status();
  if (copy.ok() && *copy && (*copy)->text == stored.text) return std::optional<Problem>();
  Status lost =
      Error(ErrorKind::kValueMismatch, "the copy of the checkpoint's manifest differs from it")
          .File((directory / std::string(kManifestCopyName)).string());
  if (!copy.ok()) lost = std::move(copy).status();
  if (copy.ok() && !*copy) lost = Missing(directory, kManifestCopyName);
  Problem problem = lost.first();
  problem.hint = kRepairManifest;
  return std::optional(std::move(problem));
}

// Uses the copy in place of the manifest, which was lost for the reason `why`.
Result<std::optional<StoredManifest>> FromCopy(Storage& storage, const Path& directory,
                                               Status why) {
  Result<std::optional<StoredManifest>> copy = ReadOne(storage, directory, kManifestCopyName);
  if (!copy.ok() && IsOfSystem(copy.status().kind())) return copy;
  if (copy.ok() && *copy) {
    (*copy)->lost = why.first();
    (*copy)->lost->hint = kRepairManifest;
    return copy;
  }
  if (!copy.ok()) why.Add(std::move(copy).status());
  return why;
}

// Does the work of FindManifest, where `own` is what was found under the manifest's own name.
Result<std::optional<StoredManifest>> FindBeside(Storage& storage, const Path& directory,
                                                 Result<std::optional<StoredManifest>> own) {
  if (!own.ok()) {
    if (IsOfSystem(own.status().kind())) return own;
    return FromCopy(storage, directory, std::move(own).status());
  }
  if (*own) {
    if ((*own)->manifest.has_copy) {
      CKPT_ASSIGN_OR_RETURN((*own)->lost, CompareCopy(storage, directory, **own));
    }
    return own;
  }
  CKPT_ASSIGN_OR_RETURN(const bool has_copy, IsThere(storage, directory, kManifestCopyName));
  CKPT_ASSIGN_OR_RETURN(const bool has_parity, IsThere(storage, directory, ParityName(0)));
  if (!has_copy && !has_parity) return own;
  return FromCopy(storage, directory, Missing(directory, kManifestName));
}

}  // namespace

Result<Path> ManifestDirectory(Storage& storage, const Path& checkpoint) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(checkpoint));
  if (stat.type != FileType::kRegular) return checkpoint;
  return checkpoint.has_parent_path() ? checkpoint.parent_path() : Path(".");
}

Result<std::shared_ptr<const Manifest>> ReadManifest(Storage& storage, const Path& checkpoint) {
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, checkpoint));
  Result<std::optional<StoredManifest>> stored = ReadOne(storage, directory, kManifestName);
  if (!stored.ok() || !*stored) {
    CKPT_ASSIGN_OR_RETURN(const std::optional<StoredManifest> copy,
                          FindBeside(storage, directory, std::move(stored)));
    if (!copy) return std::shared_ptr<const Manifest>();
    return Status(*copy->lost);
  }
  Manifest& manifest = (*stored)->manifest;
  if (directory == checkpoint) return std::make_shared<const Manifest>(std::move(manifest));
  const std::optional<std::size_t> file = manifest.FindFile(checkpoint.filename().string());
  if (!file) return std::shared_ptr<const Manifest>();
  Manifest own;
  own.tool = std::move(manifest.tool);
  own.files.push_back(std::move(manifest.files[*file]));
  return std::make_shared<const Manifest>(std::move(own));
}

Result<std::optional<StoredManifest>> FindManifest(Storage& storage, const Path& directory) {
  return FindBeside(storage, directory, ReadOne(storage, directory, kManifestName));
}

}  // namespace ckpt
