#include "core/manifest/late_checks.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

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
  if (callers_++ == 0) pending_.clear();  // of readers that gave up
}

void LateChecks::End() {
  const MutexLock lock(mutex_);
  if (--callers_ == 0) files_.clear();
}

Status LateChecks::Add(std::shared_ptr<const FileOfBlocks> file, std::uint64_t block,
                       std::uint64_t skipped_bytes, ByteSpan part, std::uint32_t crc32c) {
  const Name name = {.file = file->id(), .block = block};
  std::uint32_t whole = 0;
  {
    const MutexLock lock(mutex_);
    auto at = pending_.find(name);
    if (at == pending_.end()) {
      if (file->IsChecked(block)) return OkStatus();
      // All of it at once, and as it was written: nobody else has read only parts of it here.
      const bool is_whole = part.size() == file->block_bytes(block);
      if (is_whole && crc32c == file->block_crc32c(block)) return file->Compare(block, crc32c);
      files_.emplace(file->number(), file);
      auto pending = std::make_unique<Pending>(
          Pending{.file = file, .parts = BlockParts(file->block_bytes(block))});
      at = pending_.emplace(name, std::move(pending)).first;
    }
    BlockParts& parts = at->second->parts;
    if (parts.is_complete()) return OkStatus();
    parts.Add(skipped_bytes, part, crc32c);
    if (!parts.is_complete()) return OkStatus();
    whole = parts.crc32c();
  }
  return file->Compare(block, whole);
}

std::vector<BlockPart> LateChecks::TakeParts() {
  std::map<Name, std::unique_ptr<Pending>> taken;
  {
    const MutexLock lock(mutex_);
    taken.swap(pending_);
  }
  std::vector<BlockPart> parts;
  for (const auto& [name, pending] : taken) {
    for (const auto& [begin, part] : pending->parts.parts()) {
      parts.push_back({.block = name.block,
                       .file = pending->file->number(),
                       .begin = static_cast<std::uint32_t>(begin),
                       .size_bytes = static_cast<std::uint32_t>(part.end - begin),
                       .crc32c = part.crc32c});
    }
  }
  return parts;
}

Result<std::shared_ptr<const FileOfBlocks>> LateChecks::FileOf(std::uint32_t number) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = files_.find(number); found != files_.end()) return found->second;
  }
  if (!open_file_) return Error(ErrorKind::kInternal, "no storage gives the files of these blocks");
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const FileOfBlocks> file, open_file_(number));
  const MutexLock lock(mutex_);
  return files_.emplace(number, std::move(file)).first->second;
}

Result<std::optional<BlockPart>> LateChecks::FindDamage(std::vector<BlockPart> parts) {
  const auto name_of = [](const BlockPart& part) { return std::tie(part.file, part.block); };
  std::ranges::sort(parts, {}, name_of);
  for (std::span<const BlockPart> rest = parts; !rest.empty();) {
    const std::uint64_t block = rest.front().block;
    const std::uint32_t number = rest.front().file;
    const auto of_others = std::ranges::upper_bound(rest, name_of(rest.front()), {}, name_of);
    const auto of_block = rest.first(static_cast<std::size_t>(of_others - rest.begin()));
    rest = rest.subspan(of_block.size());
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const FileOfBlocks> file, FileOf(number));
    const std::uint64_t block_bytes = file->block_bytes(block);
    CKPT_ASSIGN_OR_RETURN(const std::uint32_t crc32c,
                          ChecksumAsSeen(of_block, block_bytes, file->block_crc32c(block),
                                         [&](std::uint64_t begin, MutableByteSpan out) {
                                           return file->ReadUnchecked(block, begin, out);
                                         }));
    if (crc32c == file->block_crc32c(block)) continue;
    return std::optional(BlockPart{.block = block,
                                   .file = number,
                                   .size_bytes = static_cast<std::uint32_t>(block_bytes),
                                   .crc32c = crc32c});
  }
  return std::optional<BlockPart>();
}

Status LateChecks::Describe(const BlockPart& damaged) {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const FileOfBlocks> file, FileOf(damaged.file));
  return file->Compare(damaged.block, damaged.crc32c);
}

}  // namespace ckpt
