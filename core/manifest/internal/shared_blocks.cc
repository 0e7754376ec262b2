#include "core/manifest/internal/shared_blocks.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "core/base/thrown.h"
#include "core/manifest/manifest.h"

namespace ckpt {

SharedBlocks::Block* SharedBlocks::Find(const Name& name) {
  const auto found =
      std::ranges::find_if(blocks_, [&](const auto& block) { return block->name == name; });
  if (found == blocks_.end()) return nullptr;
  std::rotate(blocks_.begin(), found, std::next(found));
  return blocks_.front().get();
}

SharedBlocks::Block& SharedBlocks::Reserve(const Name& name) {
  // The one that was used last comes first. Of a free one at most so many bytes are still wanted.
  const auto last_free = [&](std::uint64_t most_left_bytes) CKPT_REQUIRES(mutex_) {
    return std::find_if(blocks_.rbegin(), blocks_.rend(), [&](const auto& block) {
      return block->users == 0 && block->left_bytes <= most_left_bytes;
    });
  };
  auto free = blocks_.size() < kFewBlocks ? blocks_.rend() : last_free(0);
  if (free == blocks_.rend() && blocks_.size() >= kMaxBlocks) free = last_free(kManifestBlockBytes);
  if (free != blocks_.rend()) {
    std::rotate(blocks_.begin(), std::prev(free.base()), free.base());
  } else {
    auto fresh = std::make_unique<Block>();
    fresh->bytes = std::make_unique_for_overwrite<std::byte[]>(kManifestBlockBytes);
    blocks_.insert(blocks_.begin(), std::move(fresh));
  }
  Block& block = *blocks_.front();
  block.name = name;
  block.is_here = false;
  return block;
}

Result<bool> SharedBlocks::CopyPart(const Name& name, const Source& source,
                                    std::uint64_t skipped_bytes, MutableByteSpan out) {
  Block* block = nullptr;
  bool is_here = false;
  {
    MutexLock lock(mutex_);
    block = Find(name);
    while (block != nullptr && !block->is_here) {
      lock.Wait(was_read_);
      block = Find(name);
    }
    is_here = block != nullptr;
    if (!is_here && source.is_checked()) return false;
    if (!is_here) block = &Reserve(name);
    ++block->users;
  }
  Status read;
  std::exception_ptr thrown;
  if (!is_here) {
    try {
      read = source.read({block->bytes.get(), source.size_bytes});
    } catch (const std::exception&) {
      thrown = std::current_exception();
    }
  }
  const bool is_read = thrown == nullptr && read.ok();
  if (is_read) std::memcpy(out.data(), block->bytes.get() + skipped_bytes, out.size());
  {
    const MutexLock lock(mutex_);
    --block->users;
    if (!is_here) {
      block->is_here = is_read;
      block->left_bytes = source.size_bytes;
      if (!is_read) *block = {.name = {}, .bytes = std::move(block->bytes)};
      was_read_.notify_all();
    }
    if (is_read) block->left_bytes -= std::min<std::uint64_t>(block->left_bytes, out.size());
  }
  // To make the error takes memory, which may have run out: by now no thread waits for the block.
  if (thrown != nullptr) return ThrownError(thrown);
  CKPT_RETURN_IF_ERROR(std::move(read));
  return true;
}

}  // namespace ckpt
