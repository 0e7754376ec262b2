#include "trainer/device/arena.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kAlignmentBytes = 256;
// A new slab is larger than the largest step by this fraction of it, so that steps whose sizes vary
// by a few percent do not outgrow it again and again.
constexpr std::uint64_t kHeadroomDivisor = 16;

constexpr std::uint64_t Aligned(std::uint64_t size_bytes) {
  return AlignUp(size_bytes, kAlignmentBytes);
}

}  // namespace

Arena::Arena(Device& device, Queue& queue, std::uint64_t chunk_bytes)
    : device_(device), queue_(queue), chunk_bytes_(Aligned(chunk_bytes)) {}

Tensor Arena::Allocate(DType dtype, std::initializer_list<std::int64_t> dims) {
  Tensor tensor(nullptr, dtype, dims);
  // A tensor without elements needs an address too: null means "absent".
  const std::uint64_t size_bytes = Aligned(std::max<std::uint64_t>(tensor.size_bytes(), 1));
  if (Status status = FindRoom(size_bytes); !status.ok()) {
    queue_.Fail(std::move(status));
    tensor.data = reinterpret_cast<void*>(kAlignmentBytes);
    return tensor;
  }
  tensor.data = chunks_[position_.chunk].data() + position_.offset_bytes;
  position_.offset_bytes += size_bytes;
  position_.handed_out_bytes += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, position_.handed_out_bytes);
  return tensor;
}

void Arena::Rewind(const Mark& mark) {
  CKPT_CHECK(std::pair(mark.chunk, mark.offset_bytes) <=
             std::pair(position_.chunk, position_.offset_bytes));
  position_ = mark;
}

Status Arena::Reserve(std::uint64_t size_bytes) {
  CKPT_CHECK(chunks_.empty());
  reserved_bytes_ = Aligned(size_bytes);
  return reserved_bytes_ == 0 ? OkStatus() : AddChunk(reserved_bytes_);
}

Status Arena::Consolidate() {
  CKPT_CHECK(position_.handed_out_bytes == 0);
  if (chunks_.empty()) return OkStatus();
  const std::uint64_t slab_bytes = Aligned(peak_bytes_ + peak_bytes_ / kHeadroomDivisor);
  const bool is_slab =
      chunks_.size() == 1 &&
      chunks_.front().size_bytes() <= std::max({slab_bytes, chunk_bytes_, reserved_bytes_});
  if (is_slab) return OkStatus();
  CKPT_RETURN_IF_ERROR(queue_.Synchronize());
  chunks_.clear();
  position_ = {};
  return AddChunk(slab_bytes);
}

Status Arena::FindRoom(std::uint64_t size_bytes) {
  const auto has_room = [&](std::size_t chunk, std::uint64_t offset_bytes) {
    return chunk < chunks_.size() && chunks_[chunk].size_bytes() - offset_bytes >= size_bytes;
  };
  if (has_room(position_.chunk, position_.offset_bytes)) return OkStatus();
  // Chunks are used in order and none is skipped. So the bytes lost at the end of a chunk are fewer
  // than those of the tensor that begins the next chunk, and all lost bytes together are fewer than
  // the bytes handed out. This gives the factor 2 in the header.
  const std::size_t next = position_.chunk + (position_.offset_bytes > 0 ? 1 : 0);
  if (!has_room(next, 0)) CKPT_RETURN_IF_ERROR(ReplaceUnused(next, size_bytes));
  position_.chunk = next;
  position_.offset_bytes = 0;
  return OkStatus();
}

Status Arena::ReplaceUnused(std::size_t first, std::uint64_t size_bytes) {
  std::uint64_t unused_bytes = 0;
  for (std::size_t i = first; i < chunks_.size(); ++i) unused_bytes += chunks_[i].size_bytes();
  if (unused_bytes > 0) {
    // Work enqueued earlier may use them. If it fails, the queue reports that itself.
    (void)queue_.Synchronize();
    chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(first), chunks_.end());
  }
  // As large as these chunks together: what did not fit into each may fit into one.
  return AddChunk(std::max({size_bytes, chunk_bytes_, unused_bytes}));
}

Status Arena::AddChunk(std::uint64_t size_bytes) {
  Result<Buffer> chunk = device_.Allocate(size_bytes, MemoryUse::kActivations);
  if (!chunk.ok()) {
    return Status(chunk.status()).Hint("use smaller micro-batches, or recomputation");
  }
  chunks_.push_back(std::move(*chunk));
  return OkStatus();
}

}  // namespace ckpt::trainer
