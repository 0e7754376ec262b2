#include "trainer/device/arena.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kAlignmentBytes = 256;

}  // namespace

Tensor Arena::Allocate(DType dtype, std::initializer_list<std::int64_t> dims) {
  Tensor tensor(nullptr, dtype, dims);
  // A tensor without elements still has an address: null means "absent".
  const std::uint64_t size_bytes = std::max<std::uint64_t>(tensor.size_bytes(), 1);
  while (position_.chunk < chunks_.size() &&
         chunks_[position_.chunk].size_bytes() - position_.offset_bytes < size_bytes) {
    position_ = {.chunk = position_.chunk + 1, .offset_bytes = 0};
  }
  if (position_.chunk == chunks_.size()) AddChunk(size_bytes);

  const Buffer& chunk = chunks_[position_.chunk];
  tensor.data = chunk.data() + position_.offset_bytes;
  const std::uint64_t end_bytes = position_.offset_bytes + size_bytes;
  const std::uint64_t aligned_bytes =
      (end_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  position_.offset_bytes = std::min(aligned_bytes, chunk.size_bytes());
  peak_bytes_ = std::max(peak_bytes_, chunk_starts_[position_.chunk] + position_.offset_bytes);
  return tensor;
}

void Arena::Rewind(const Mark& mark) {
  CKPT_CHECK(std::pair(mark.chunk, mark.offset_bytes) <=
             std::pair(position_.chunk, position_.offset_bytes));
  position_ = mark;
}

void Arena::AddChunk(std::uint64_t size_bytes) {
  const std::uint64_t start_bytes =
      chunks_.empty() ? 0 : chunk_starts_.back() + chunks_.back().size_bytes();
  Result<Buffer> chunk =
      device_.Allocate(std::max(size_bytes, chunk_bytes_), MemoryUse::kActivations);
  CKPT_CHECK(chunk.ok());
  chunks_.push_back(std::move(*chunk));
  chunk_starts_.push_back(start_bytes);
}

}  // namespace ckpt::trainer
