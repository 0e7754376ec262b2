#include "core/manifest/internal/shared_blocks.h"

#include <algorithm>
#include <cstring>
#include <iterator>

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
  const bool is_full = blocks_.size() >= kMaxBlocks;
  const auto free = std::find_if(blocks_.rbegin(), blocks_.rend(), [&](const auto& block) {
    return block->users == 0 && (is_full || !block->is_here);
  });
  if (free != blocks_.rend()) {
    std::rotate(blocks_.begin(), std::prev(free.base()), free.base());
  } else {
    blocks_.insert(blocks_.begin(), std::make_unique<Block>());
    blocks_.front()->bytes = std::make_unique_for_overwrite<std::byte[]>(kManifestBlockBytes);
  }
  Block& block = *blocks_.front();
  block.name = name;
  block.is_here = false;
  return block;
}

void SharedBlocks::Forget(Block& block) {
  block.name = {};
  block.is_here = false;
  const auto found =
      std::ranges::find_if(blocks_, [&](const auto& kept) { return kept.get() == &block; });
  std::rotate(found, std::next(found), blocks_.end());
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
  if (!is_here) read = source.read({block->bytes.get(), source.size_bytes});
  if (read.ok()) std::memcpy(out.data(), block->bytes.get() + skipped_bytes, out.size());

  const MutexLock lock(mutex_);
  --block->users;
  if (!is_here) {
    block->is_here = true;
    block->left_bytes = read.ok() ? source.size_bytes : 0;
    was_read_.notify_all();
  }
  block->left_bytes -= std::min<std::uint64_t>(block->left_bytes, out.size());
  if (block->left_bytes == 0) Forget(*block);
  CKPT_RETURN_IF_ERROR(read);
  return true;
}

}  // namespace ckpt
