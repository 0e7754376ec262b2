#include "core/manifest/manifest.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/manifest/internal/manifest_rules.h"

namespace ckpt {
namespace {

bool IsBeside(std::string_view name, std::string_view suffix) {
  return name.starts_with(kOutside) && name.ends_with(suffix) &&
         name.size() > kOutside.size() + suffix.size() &&
         name.find('/', kOutside.size()) == std::string_view::npos;
}

bool IsTrackerText(std::string_view name) { return IsBeside(name, ".txt"); }

}  // namespace

std::string ParityName(std::size_t number) {
  return fmt::format("{}{:03d}{}", kParityPrefix, number, kParitySuffix);
}

bool IsTracker(std::string_view name) { return IsTrackerText(name) || IsBeside(name, ".pt"); }

std::optional<std::size_t> Manifest::FindTracker() const {
  const auto found = std::ranges::find_if(files, IsTrackerText, &ManifestFile::name);
  if (found == files.end()) return std::nullopt;
  return static_cast<std::size_t>(found - files.begin());
}

std::optional<std::size_t> Manifest::FindFile(std::string_view name) const {
  const auto it = std::lower_bound(
      files.begin(), files.end(), name,
      [](const ManifestFile& file, std::string_view wanted) { return file.name < wanted; });
  if (it == files.end() || it->name != name) return std::nullopt;
  return static_cast<std::size_t>(it - files.begin());
}

std::string FileRoot(const ManifestFile& file) {
  Bytes bytes;
  AppendLe(file.size_bytes, bytes);
  for (const std::uint32_t crc : file.block_crc32c) AppendLe(crc, bytes);
  return HashHex(HashAlgorithm::kXxh3, bytes);
}

}  // namespace ckpt
