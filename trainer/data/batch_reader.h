// The micro-batches of a rank, out of the row of global samples.
//
// With D ranks and micro-batches of B sequences, a step that begins at global sample C gives micro-batch m of rank r
//
//   C + m·D·B + r·B + b,   b in [0, B)
//
// as Megatron's sampler does: which samples make a step does not depend on the mesh, only who computes them.
#ifndef CKPT_TRAINER_DATA_BATCH_READER_H_
#define CKPT_TRAINER_DATA_BATCH_READER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/result.h"
#include "trainer/data/sequence_source.h"
#include "trainer/step/rank_trainer.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// Thread-safety: const methods may run concurrently.
class BatchReader {
 public:
  // REQUIRES: the configuration is valid, 0 <= rank < config.mesh.world_size.
  // Errors: kShapeMismatch (the source's sequences have another length than the configuration's).
  static Result<BatchReader> Create(std::shared_ptr<const SequenceSource> source,
                                    const TrainConfig& config, int rank);

  // Samples that `steps` steps consume, all ranks together: what to begin the next step at.
  [[nodiscard]] std::int64_t SamplesOf(std::int64_t steps) const;
  // REQUIRES: consumed >= 0, 0 <= index < micro_batch_size.
  [[nodiscard]] std::int64_t GlobalSample(std::int64_t consumed, std::int64_t micro_batch,
                                          std::int64_t index) const;

  // This rank's micro-batches of the step that begins after `consumed` samples. A run that resumes passes what it had
  // consumed, whatever batch size and mesh it consumed that with.
  //
  // Errors: those of the source.
  [[nodiscard]] Result<std::vector<HostMicroBatch>> ReadStep(std::int64_t consumed) const;
  // The first `num_micro_batches` of as many samples as they take, for an evaluation.
  [[nodiscard]] Result<std::vector<HostMicroBatch>> Read(std::int64_t consumed,
                                                         std::int64_t num_micro_batches) const;

 private:
  BatchReader(std::shared_ptr<const SequenceSource> source, const TrainConfig& config, int rank);
  [[nodiscard]] Result<HostMicroBatch> ReadMicroBatch(std::int64_t consumed,
                                                      std::int64_t micro_batch) const;

  std::shared_ptr<const SequenceSource> source_;
  std::int64_t micro_batch_size_;
  std::int64_t num_micro_batches_;
  std::int64_t num_ranks_;
  std::int64_t rank_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_BATCH_READER_H_
