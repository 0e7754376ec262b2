#include "trainer/device/row_counts.h"

#include <cstddef>
#include <utility>

#include "core/base/check.h"

namespace ckpt::trainer {

struct RowCounts::HostCopy {
  Queue* queue = nullptr;  // that of the reader
  PinnedBuffer memory = {};
  Event done = {};
};

Result<std::span<const std::int64_t>> RowCounts::OnHost() const {
  CKPT_CHECK(on_host_ != nullptr);
  CKPT_RETURN_IF_ERROR(on_host_->queue->Await(on_host_->done));
  return std::span(reinterpret_cast<const std::int64_t*>(on_host_->memory.data()),
                   static_cast<std::size_t>(on_device_.num_elems()));
}

CountsReader::~CountsReader() {
  if (queue_ != nullptr) (void)queue_->Synchronize();
}

RowCounts CountsReader::Read(Queue& queue, const Tensor& counts) {
  CKPT_CHECK(counts.dtype == DType::kInt64 && counts.num_elems() == num_ranks_);
  if (queue_ == nullptr) queue_ = device_.MakeQueue("row counts");
  const std::shared_ptr<RowCounts::HostCopy> copy = Take();
  queue_->Wait(queue.Record());
  device_.CopyToHost(*queue_, counts, copy->memory.data());
  copy->done = queue_->Record();
  RowCounts read(counts);
  read.on_host_ = copy;
  return read;
}

// A copy into memory that nobody holds may still be under way: the next one comes behind it, on the
// same queue.
std::shared_ptr<RowCounts::HostCopy> CountsReader::Take() {
  for (const std::shared_ptr<RowCounts::HostCopy>& copy : copies_) {
    if (copy.use_count() == 1) return copy;
  }
  const auto size_bytes = static_cast<std::uint64_t>(num_ranks_) * sizeof(std::int64_t);
  Result<PinnedBuffer> memory = device_.AllocatePinned(size_bytes);
  if (!memory.ok()) queue_->Fail(memory.status());  // it will not copy
  copies_.push_back(std::make_shared<RowCounts::HostCopy>(RowCounts::HostCopy{
      .queue = queue_.get(), .memory = memory.ok() ? std::move(memory).value() : PinnedBuffer()}));
  return copies_.back();
}

}  // namespace ckpt::trainer
