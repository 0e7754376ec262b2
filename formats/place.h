// Where a checkpoint may lie, as formats look at it: the names in a directory, or the first bytes
// of a file.
#ifndef CKPT_FORMATS_PLACE_H_
#define CKPT_FORMATS_PLACE_H_

#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// The names in one directory, asked about by pattern.
class DirectoryNames {
 public:
  explicit DirectoryNames(std::vector<DirectoryEntry> entries) : entries_(std::move(entries)) {}

  [[nodiscard]] bool Has(std::string_view name) const;
  [[nodiscard]] bool HasPrefix(std::string_view prefix) const;
  [[nodiscard]] bool HasSuffix(std::string_view suffix) const;
  [[nodiscard]] bool HasAffixes(std::string_view prefix, std::string_view suffix) const;
  [[nodiscard]] const std::vector<DirectoryEntry>& entries() const { return entries_; }

 private:
  std::vector<DirectoryEntry> entries_;
};

struct Place {
  Storage* storage = nullptr;  // never null
  Path path;
  bool is_directory = false;
  DirectoryNames names;  // of a directory
  Bytes head;            // of a file: its first bytes, at least one
};

// Errors: kIo.
Result<Place> LookAtDirectory(Storage& storage, const Path& path);

// Errors: kTruncated (an empty file), kIncomplete (a pointer that Git LFS left in place of the
// file), kIo.
Result<Place> LookAtFile(Storage& storage, const Path& path);

}  // namespace ckpt

#endif  // CKPT_FORMATS_PLACE_H_
