#include "trainer/data/batch_reader.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace ckpt::trainer {

Result<BatchReader> BatchReader::Create(std::shared_ptr<const SequenceSource> source,
                                        const TrainConfig& config, int rank) {
  CKPT_CHECK(rank >= 0 && rank < config.mesh.world_size);
  if (source->seq_length() != config.seq_length) {
    return Error(ErrorKind::kShapeMismatch, "the data's sequences are not seq_length tokens long")
        .Expected(fmt::format("seq_length {}", config.seq_length))
        .Actual(fmt::format("{} tokens", source->seq_length()));
  }
  return BatchReader(std::move(source), config, rank);
}

BatchReader::BatchReader(std::shared_ptr<const SequenceSource> source, const TrainConfig& config,
                         int rank)
    : source_(std::move(source)),
      micro_batch_size_(config.micro_batch_size),
      num_micro_batches_(config.num_micro_batches()),
      num_ranks_(config.mesh.world_size),
      rank_(rank) {}

std::int64_t BatchReader::SamplesOf(std::int64_t steps) const {
  std::int64_t samples = 0;
  const std::int64_t of_one = num_micro_batches_ * num_ranks_ * micro_batch_size_;
  return CheckedMul(steps, of_one, &samples) ? samples : std::numeric_limits<std::int64_t>::max();
}

std::int64_t BatchReader::GlobalSample(std::int64_t consumed, std::int64_t micro_batch,
                                       std::int64_t index) const {
  CKPT_CHECK(consumed >= 0 && index >= 0 && index < micro_batch_size_);
  return consumed + (micro_batch * num_ranks_ + rank_) * micro_batch_size_ + index;
}

Result<std::vector<HostMicroBatch>> BatchReader::ReadStep(std::int64_t consumed) const {
  return Read(consumed, num_micro_batches_);
}

Result<std::vector<HostMicroBatch>> BatchReader::Read(std::int64_t consumed,
                                                      std::int64_t num_micro_batches) const {
  std::vector<HostMicroBatch> batches;
  batches.reserve(static_cast<std::size_t>(num_micro_batches));
  for (std::int64_t m = 0; m < num_micro_batches; ++m) {
    CKPT_ASSIGN_OR_RETURN(HostMicroBatch batch, ReadMicroBatch(consumed, m));
    batches.push_back(std::move(batch));
  }
  return batches;
}

Result<HostMicroBatch> BatchReader::ReadMicroBatch(std::int64_t consumed,
                                                   std::int64_t micro_batch) const {
  HostMicroBatch batch;
  batch.batch = micro_batch_size_;
  batch.seq = source_->seq_length();
  const auto num_tokens = static_cast<std::size_t>(batch.batch * batch.seq);
  batch.tokens.reserve(num_tokens);
  batch.labels.reserve(num_tokens);
  for (std::int64_t b = 0; b < micro_batch_size_; ++b) {
    CKPT_ASSIGN_OR_RETURN(const Sequence sequence,
                          source_->Read(GlobalSample(consumed, micro_batch, b)));
    batch.tokens.insert(batch.tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    batch.labels.insert(batch.labels.end(), sequence.labels.begin(), sequence.labels.end());
    batch.positions.insert(batch.positions.end(), sequence.positions.begin(),
                           sequence.positions.end());
    std::int64_t begin = b * batch.seq;
    for (const std::int32_t length : sequence.lengths) {
      batch.cu_seqlens.push_back(static_cast<std::int32_t>(begin));
      batch.lengths.push_back(length);
      begin += length;
    }
  }
  if (!batch.lengths.empty()) batch.cu_seqlens.push_back(static_cast<std::int32_t>(num_tokens));
  CKPT_CHECK(batch.tokens.size() == num_tokens && batch.labels.size() == num_tokens);
  CKPT_CHECK(batch.positions.empty() || batch.positions.size() == num_tokens);
  return batch;
}

}  // namespace ckpt::trainer
