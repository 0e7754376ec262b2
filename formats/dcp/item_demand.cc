#include "formats/dcp/item_demand.h"

#include <limits>

#include "core/base/checked_math.h"

namespace ckpt::dcp {
namespace {

constexpr std::uint64_t kMaxTimesRead = 64;

void AddSaturated(std::uint64_t bytes, std::uint64_t& sum) {
  if (!CheckedAdd(sum, bytes, &sum)) sum = std::numeric_limits<std::uint64_t>::max();
}

template <typename Function>
void ForEachEntry(const CheckpointIndex& index, const Function& function) {
  for (const Chunk& chunk : index.chunks()) function(chunk);
  for (const ObjectEntry& object : index.objects()) function(object);
  for (const ObjectEntry& copy : index.object_copies()) function(copy);
}

}  // namespace

ItemDemand::ItemDemand(const CheckpointIndex& index)
    : index_(&index), asked_bytes_(index.files().size()) {
  ForEachEntry(
      index, [&](const auto& entry) { AddSaturated(entry.size_bytes, asked_bytes_[entry.file]); });
}

bool ItemDemand::IsExcessive(FileId file, std::uint64_t file_bytes) const {
  if (asked_bytes_[file] / kMaxTimesRead <= file_bytes) return false;
  const MutexLock lock(mutex_);
  const auto [verdict, is_new] = known_.try_emplace(file, false);
  if (is_new) {
    std::uint64_t readable = 0;
    ForEachEntry(*index_, [&](const auto& entry) {
      const bool counts =
          entry.file == file && RangeFits(entry.offset_bytes, entry.size_bytes, file_bytes);
      if (counts) AddSaturated(entry.size_bytes, readable);
    });
    verdict->second = readable / kMaxTimesRead > file_bytes;
  }
  return verdict->second;
}

}  // namespace ckpt::dcp
