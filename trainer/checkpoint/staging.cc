#include "trainer/checkpoint/staging.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/task_pool.h"
#include "core/io/storage.h"
#include "trainer/optim/optimizer.h"

namespace ckpt::trainer {

namespace {

// A file of pinned memory, which is filled again and again, but never while it is read.
class StagedFile final : public ReadableFile {
 public:
  StagedFile(std::string name, std::shared_ptr<const PinnedBuffer> memory)
      : name_(std::move(name)), memory_(std::move(memory)) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return memory_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return name_; }

  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    if (!RangeFits(offset, out.size(), size_bytes())) {
      return Error(ErrorKind::kTruncated, "read past the end")
          .File(DescribeRange(name_, offset, out.size()))
          .Actual(fmt::format("{} bytes", size_bytes()));
    }
    if (!out.empty()) std::memcpy(out.data(), memory_->data() + offset, out.size());
    return OkStatus();
  }

  Result<std::unique_ptr<FileView>> View() const override {
    class SharedView final : public FileView {
     public:
      explicit SharedView(std::shared_ptr<const PinnedBuffer> memory)
          : memory_(std::move(memory)) {}
      [[nodiscard]] ByteSpan bytes() const override {
        return {memory_->data(), memory_->size_bytes()};
      }
      void DropBefore(std::uint64_t /*offset*/) const override {}

     private:
      std::shared_ptr<const PinnedBuffer> memory_;
    };
    return std::unique_ptr<FileView>(std::make_unique<SharedView>(memory_));
  }

 private:
  const std::string name_;
  const std::shared_ptr<const PinnedBuffer> memory_;
};

}  // namespace

Result<Staging> Staging::Create(const StateMap& map, int rank,
                                std::span<const MemoryTensor> run_tensors, Device& device) {
  Staging staging;
  const std::uint64_t staged_bytes = map.staged_bytes[static_cast<std::size_t>(rank)];
  Result<PinnedBuffer> memory = device.AllocatePinned(staged_bytes);
  if (!memory.ok()) {
    return Error(ErrorKind::kSystem, "no memory to stage this rank's part of a checkpoint")
        .Expected(fmt::format("{} bytes", staged_bytes));
  }
  staging.memory_ = std::make_shared<PinnedBuffer>(std::move(memory).value());
  // Now rather than in the first save, which would wait for the pages.
  std::memset(staging.memory_->data(), 0, staged_bytes);
  for (const GlobalTensor& tensor : map.index.tensors()) {
    for (const Chunk& chunk : map.index.chunks(tensor)) {
      if (chunk.file != static_cast<FileId>(rank)) continue;
      if (tensor.key.starts_with(kRunPart)) {
        const auto key = std::string_view(tensor.key).substr(kRunPart.size());
        const auto given = std::ranges::find(run_tensors, key, &MemoryTensor::key);
        std::ranges::copy(given->values, staging.bytes().subspan(chunk.offset_bytes).begin());
        continue;
      }
      staging.slots_[tensor.key].push_back(
          {.row_begin = map.index.offsets(chunk).front(),
           .rows = map.index.sizes(chunk).front(),
           .row_bytes =
               chunk.size_bytes / static_cast<std::uint64_t>(map.index.sizes(chunk).front()),
           .offset_bytes = chunk.offset_bytes});
      staging.state_bytes_ += chunk.size_bytes;
    }
  }
  std::vector<std::shared_ptr<const ReadableFile>> files(map.staged_bytes.size());
  files[static_cast<std::size_t>(rank)] = std::make_shared<StagedFile>(
      map.index.files()[static_cast<std::size_t>(rank)], staging.memory_);
  CKPT_ASSIGN_OR_RETURN(staging.source_, MakePartialSource(map.index, std::move(files)));
  return staging;
}

PlaceRows Staging::PlacesOf(std::string_view part, std::uint64_t& staged) {
  return [this, part, &staged](const ParamPiece& piece) {
    const auto found = slots_.find(std::string(part) + piece.spec->name);
    if (found == slots_.end()) return MutableByteSpan();
    const auto slot = std::ranges::find_if(found->second, [&](const Slot& s) {
      return s.row_begin == piece.row_begin && s.rows == piece.rows;
    });
    if (slot == found->second.end()) return MutableByteSpan();
    const std::uint64_t bytes = static_cast<std::uint64_t>(slot->rows) * slot->row_bytes;
    staged += bytes;
    return this->bytes().subspan(slot->offset_bytes, bytes);
  };
}

Status Staging::Fill(RankTrainer& trainer) {
  std::uint64_t staged = 0;
  CKPT_RETURN_IF_ERROR(trainer.ReadWeights(PlacesOf(kWeightsPart, staged)));
  for (int moment = 0; moment < NumMoments(trainer.config().optimizer); ++moment) {
    const std::string part = MomentPart(moment);
    CKPT_RETURN_IF_ERROR(trainer.ReadMoment(moment, PlacesOf(part, staged)));
  }
  if (staged == state_bytes_) return OkStatus();
  return Error(ErrorKind::kInternal, "a rank does not own what it should write")
      .Expected(fmt::format("{} bytes", state_bytes_))
      .Actual(fmt::format("{} bytes", staged));
}

Hash128 Staging::SumOfSlot(std::uint64_t name, const Slot& slot) const {
  Hash128 sum;
  for (std::int64_t row = 0; row < slot.rows; ++row) {
    const ByteSpan row_bytes = bytes().subspan(
        slot.offset_bytes + static_cast<std::uint64_t>(row) * slot.row_bytes, slot.row_bytes);
    sum = sum + HashXxh3(row_bytes, name + static_cast<std::uint64_t>(slot.row_begin + row));
  }
  return sum;
}

Result<Hash128> Staging::SumRows(int threads) const {
  std::vector<std::pair<std::uint64_t, const Slot*>> named;
  for (const auto& [key, slots] : slots_) {
    const std::uint64_t name = HashXxh3(AsBytes(key)).low;
    for (const Slot& slot : slots) named.emplace_back(name, &slot);
  }
  std::vector<Hash128> sums(named.size());
  CKPT_RETURN_IF_ERROR(RunTasks(named.size(), threads, {}, [&](std::size_t i, std::size_t) {
    sums[i] = SumOfSlot(named[i].first, *named[i].second);
    return OkStatus();
  }));
  return std::accumulate(sums.begin(), sums.end(), Hash128());
}

}  // namespace ckpt::trainer
