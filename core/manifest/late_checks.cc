#include "core/manifest/late_checks.h"

#include <optional>
#include <utility>

#include "core/base/hash.h"
#include "core/manifest/internal/block_parts.h"

namespace ckpt {

// A block of which some parts were read.
struct LateChecks::Pending {
  std::shared_ptr<const FileOfBlocks> file;
  BlockParts parts;
};

LateChecks::LateChecks() = default;
LateChecks::~LateChecks() = default;

void LateChecks::Begin() {
  const MutexLock lock(mutex_);
  if (callers_++ != 0) return;
  pending_.clear();  // of readers that gave up
  failure_ = OkStatus();
}

Status LateChecks::Add(std::shared_ptr<const FileOfBlocks> file, std::uint64_t block,
                       std::uint64_t skipped_bytes, ByteSpan part, std::uint32_t crc32c) {
  const Name name = {.file = file->id(), .block = block};
  std::optional<std::uint32_t> whole;
  {
    const MutexLock lock(mutex_);
    auto at = pending_.find(name);
    if (at == pending_.end()) {
      if (file->IsChecked(block)) return OkStatus();
      auto pending = std::make_unique<Pending>(
          Pending{.file = file, .parts = BlockParts(file->block_bytes(block))});
      at = pending_.emplace(name, std::move(pending)).first;
    }
    BlockParts& parts = at->second->parts;
    parts.Add(skipped_bytes, part, crc32c);
    if (parts.FirstGap()) return OkStatus();
    whole = parts.crc32c();
    pending_.erase(at);
  }
  Status compared = file->Compare(block, *whole);
  if (!compared.ok()) {
    const MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = compared;
  }
  return compared;
}

Status LateChecks::Complete(std::uint64_t block, Pending& pending) {
  if (pending.file->IsChecked(block)) return OkStatus();  // another reader needed all of it
  Bytes bytes;
  while (const std::optional<BlockParts::Gap> gap = pending.parts.FirstGap()) {
    bytes.resize(gap->size_bytes);
    CKPT_RETURN_IF_ERROR(pending.file->ReadUnchecked(block, gap->begin, bytes));
    pending.parts.Add(gap->begin, bytes, Crc32c(bytes));
  }
  return pending.file->Compare(block, pending.parts.crc32c());
}

Status LateChecks::Finish() {
  // The lock is held while blocks are read: whoever else has finished waits for the same result.
  const MutexLock lock(mutex_);
  for (auto& [name, pending] : pending_) {
    Status completed = Complete(name.block, *pending);
    if (failure_.ok()) failure_ = std::move(completed);
    if (!failure_.ok()) break;
  }
  pending_.clear();
  --callers_;
  return failure_;
}

}  // namespace ckpt
