#include "core/checkpoint/byte_owners.h"

#include <algorithm>
#include <limits>

#include "core/base/checked_math.h"

namespace ckpt {

ByteOwners::ByteOwners(const CheckpointIndex& index) {
  const auto add = [&](const auto& stored, ByteOwner owner) {
    Entry entry{.begin = stored.offset_bytes, .owner = owner};
    // Metadata may claim anything: an end that would wrap becomes the largest number.
    if (!CheckedAdd(stored.offset_bytes, stored.size_bytes, &entry.end)) {
      entry.end = std::numeric_limits<std::uint64_t>::max();
    }
    files_[index.files()[stored.file]].push_back(entry);
  };
  for (const GlobalTensor& tensor : index.tensors()) {
    for (const Chunk& chunk : index.chunks(tensor)) add(chunk, {tensor.key, &chunk});
  }
  for (const ObjectEntry& object : index.objects()) add(object, {object.key, nullptr});
  for (auto& [name, entries] : files_) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
    std::uint64_t reach = 0;
    for (Entry& entry : entries) entry.reach = reach = std::max(reach, entry.end);
  }
}

std::vector<ByteOwner> ByteOwners::Of(std::string_view file, std::uint64_t offset_bytes,
                                      std::uint64_t size_bytes) const {
  std::vector<ByteOwner> owners;
  const auto of_file = files_.find(file);
  if (of_file == files_.end()) return owners;
  const std::vector<Entry>& entries = of_file->second;
  auto entry = std::partition_point(entries.begin(), entries.end(),
                                    [&](const Entry& e) { return e.reach <= offset_bytes; });
  for (; entry != entries.end() && entry->begin < offset_bytes + size_bytes; ++entry) {
    const bool is_empty = entry->begin == entry->end;
    if (!is_empty && entry->end > offset_bytes) owners.push_back(entry->owner);
  }
  return owners;
}

UnownedRegion ByteOwners::RegionOf(std::string_view file, std::uint64_t offset_bytes) const {
  const auto of_file = files_.find(file);
  if (of_file == files_.end()) return UnownedRegion::kFile;
  if (offset_bytes < of_file->second.front().begin) return UnownedRegion::kHeader;
  return offset_bytes < of_file->second.back().reach ? UnownedRegion::kBetween
                                                     : UnownedRegion::kTrailer;
}

}  // namespace ckpt
