#include "core/checkpoint/entry_map.h"

#include <algorithm>

#include "core/base/checked_math.h"

namespace ckpt {
namespace {

// No known writer uses a larger alignment.
constexpr std::uint64_t kMaxAlignmentBytes = 64;

}  // namespace

EntryMap::EntryMap(const CheckpointIndex& index) : files_(index.files().size()) {
  const auto add = [this](const auto& entry) {
    OfFile& file = files_[entry.file];
    file.begins.push_back(entry.offset_bytes);
    std::uint64_t end = 0;
    if (CheckedAdd(entry.offset_bytes, entry.size_bytes, &end)) file.ends.push_back(end);
  };
  for (const Chunk& chunk : index.chunks()) add(chunk);
  for (const ObjectEntry& object : index.objects()) add(object);
  for (const ObjectEntry& copy : index.object_copies()) add(copy);
  for (OfFile& file : files_) {
    std::sort(file.begins.begin(), file.begins.end());
    std::sort(file.ends.begin(), file.ends.end());
  }
}

bool EntryMap::LooksCutOff(FileId file, std::uint64_t offset_bytes,
                           std::uint64_t size_bytes) const {
  const OfFile& entries = files_[file];
  const auto next = std::upper_bound(entries.begins.begin(), entries.begins.end(), offset_bytes);
  if (next != entries.begins.end() && *next - offset_bytes < size_bytes) return false;
  const auto behind = std::upper_bound(entries.ends.begin(), entries.ends.end(), offset_bytes);
  const std::uint64_t free_from = behind == entries.ends.begin() ? 0 : *(behind - 1);
  return offset_bytes - free_from < kMaxAlignmentBytes;
}

}  // namespace ckpt
