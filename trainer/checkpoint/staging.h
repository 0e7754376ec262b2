// Staging: one rank's rows of a run's state, copied out so that training may go on.
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
#include "trainer/step/rank_trainer.h"

namespace ckpt::trainer {

// The memory is kept from save to save. One thread.
class Staging {
 public:
  // Errors: kSystem.
  static Result<Staging> Create(const StateMap& map, int rank,
                                std::span<const MemoryTensor> run_tensors);

  // Copies what `rank` writes, and nothing else that it holds. Errors: those of
  // RankTrainer::ReadWeights and ReadMoment; kInternal (the trainer does not own what the map
  // says).
  Status Fill(RankTrainer& trainer);

  // Sum of a hash of every staged row of parameters, buffers and moments; a row's depends on its
  // key, its number and its bits. Every row is staged once in the world: the sum over all ranks is
  // the same on every mesh.
  [[nodiscard]] Hash128 SumRows() const;

  // The state as a checkpoint of which this rank's file is here. Uses this object's memory until the
  // next Fill.
  [[nodiscard]] const std::shared_ptr<const CheckpointSource>& source() const { return source_; }

 private:
  // Rows that are staged, by the first.
  struct Slot {
    std::int64_t row_begin = 0;
    std::int64_t rows = 0;
    std::uint64_t row_bytes = 0;
    std::uint64_t offset_bytes = 0;
  };

  // Where rows of a part are staged, and counts their bytes; nowhere if another replica writes
  // them.
  ParamStore::PlaceRows PlacesOf(std::string_view part, std::uint64_t& staged);

  std::shared_ptr<Bytes> memory_;
  std::map<std::string, std::vector<Slot>, std::less<>> slots_;  // by key
  std::uint64_t state_bytes_ = 0;  // staged of parameters, buffers and moments
  std::shared_ptr<const CheckpointSource> source_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_CHECKPOINT_STAGING_H_
