#include "formats/place.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/io/git_lfs_pointer.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kHeadBytes = 16;

template <typename Predicate>
bool AnyName(const std::vector<DirectoryEntry>& entries, Predicate matches) {
  return std::ranges::any_of(
      entries, [&](const DirectoryEntry& entry) { return matches(std::string_view(entry.name)); });
}

}  // namespace

bool DirectoryNames::Has(std::string_view name) const {
  return AnyName(entries_, [&](std::string_view other) { return other == name; });
}

bool DirectoryNames::HasPrefix(std::string_view prefix) const {
  return AnyName(entries_, [&](std::string_view name) { return name.starts_with(prefix); });
}

bool DirectoryNames::HasSuffix(std::string_view suffix) const {
  return AnyName(entries_, [&](std::string_view name) { return name.ends_with(suffix); });
}

bool DirectoryNames::HasAffixes(std::string_view prefix, std::string_view suffix) const {
  return AnyName(entries_, [&](std::string_view name) {
    return name.starts_with(prefix) && name.ends_with(suffix);
  });
}

Result<Place> LookAtDirectory(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, storage.List(path));
  return Place{.storage = &storage,
               .path = path,
               .is_directory = true,
               .names = DirectoryNames(std::move(entries)),
               .head = {}};
}

Result<Place> LookAtFile(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, storage.Open(path));
  if (file->size_bytes() == 0) {
    return Error(ErrorKind::kTruncated, "the file is empty").File(path.string());
  }
  CKPT_RETURN_IF_ERROR(RefuseGitLfsPointer(*file));
  Bytes head(std::min(kHeadBytes, file->size_bytes()));
  CKPT_RETURN_IF_ERROR(file->ReadAt(0, head));
  return Place{.storage = &storage,
               .path = path,
               .is_directory = false,
               .names = DirectoryNames({}),
               .head = std::move(head)};
}

}  // namespace ckpt
