// The micro-batches of a rank, cut from the numbered global samples.
//
// There are D ranks and micro-batches of B sequences. If a step begins at global sample C,
// micro-batch m of rank r is
//
//   C + m·D·B + r·B + b,   b in [0, B)
//
// as in Megatron's sampler. The mesh decides only which rank computes a sample, not which samples
// make a step.
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
  // Errors: kShapeMismatch (the source's sequences do not have the configured length).
  static Result<BatchReader> Create(std::shared_ptr<const SequenceSource> source,
                                    const TrainConfig& config, int rank);

  // Samples that `steps` steps consume on all ranks together; the largest number if they are more.
  [[nodiscard]] std::int64_t SamplesOf(std::int64_t steps) const;
  // REQUIRES: consumed >= 0, 0 <= index < micro_batch_size.
  [[nodiscard]] std::int64_t GlobalSample(std::int64_t consumed, std::int64_t micro_batch,
                                          std::int64_t index) const;

  // This rank's micro-batches of the step that begins after `consumed` samples. A run that resumes
  // passes the number of samples that it had consumed; the batch size and the mesh may have changed
  // since.
  //
  // Errors: those of the source.
  [[nodiscard]] Result<std::vector<HostMicroBatch>> ReadStep(std::int64_t consumed) const;
  // The first `num_micro_batches` micro-batches from there, for an evaluation.
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
