// Staging: a copy of one rank's rows of a run's state, so that training may change the originals.
#ifndef CKPT_TRAINER_CHECKPOINT_STAGING_H_
#define CKPT_TRAINER_CHECKPOINT_STAGING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/result.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "trainer/checkpoint/state_map.h"
#include "trainer/device/device.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::trainer {

// Saves share one block of memory. One thread.
class Staging {
 public:
  // `device` outlives it and its source. Errors: kSystem.
  static Result<Staging> Create(const StateMap& map, int rank,
                                std::span<const MemoryTensor> run_tensors, Device& device);

  // Begins to copy the rows that `rank` writes, and no others; RankTrainer::AwaitReads waits for
  // it. Errors: those of RankTrainer::ReadWeights and ReadMoment; kInternal (the trainer does not
  // own the rows that the map names).
  Status Fill(RankTrainer& trainer);

  // Sum of the hashes of all staged rows of parameters, buffers and moments. A row's hash depends
  // on its key, its number and its bits. Exactly one rank stages each row, so the sum over all
  // ranks is the same on every mesh.
  // REQUIRES: the copy is complete. Errors: kSystem (no memory).
  [[nodiscard]] Result<Hash128> SumRows(int threads) const;

  // The state as a checkpoint, of which only this rank's file can be read here. It uses this
  // object's memory: the next Fill changes it.
  [[nodiscard]] const std::shared_ptr<const CheckpointSource>& source() const { return source_; }

 private:
  // Where consecutive rows are staged.
  struct Slot {
    std::int64_t row_begin = 0;
    std::int64_t rows = 0;
    std::uint64_t row_bytes = 0;
    std::uint64_t offset_bytes = 0;
  };

  // Returns where the rows of a part are staged, and adds up their bytes in `staged`. Rows that
  // another replica writes have no place.
  PlaceRows PlacesOf(std::string_view part, std::uint64_t& staged);

  // Of the rows of a slot whose key has this hash.
  [[nodiscard]] Hash128 SumOfSlot(std::uint64_t name, const Slot& slot) const;

  [[nodiscard]] MutableByteSpan bytes() const { return {memory_->data(), memory_->size_bytes()}; }

  std::shared_ptr<PinnedBuffer> memory_;
  std::map<std::string, std::vector<Slot>, std::less<>> slots_;  // by key
  std::uint64_t state_bytes_ = 0;  // staged bytes of parameters, buffers and moments
  std::shared_ptr<const CheckpointSource> source_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_CHECKPOINT_STAGING_H_
