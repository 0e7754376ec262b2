#include "trainer/data/batch_reader.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;

// Sequence g is (g, -g), its labels (g + 1, none).
class NumberSequences final : public SequenceSource {
 public:
  std::int64_t seq_length() const override { return 2; }
  std::int64_t num_samples() const override { return 1 << 20; }
  Result<Sequence> Read(std::int64_t g) const override {
    const auto number = static_cast<std::int32_t>(g);
    return Sequence{.tokens = {number, -number}, .labels = {number + 1, kNoLabel}};
  }
};

TrainConfig Config(int ranks, std::int64_t micro_batch, std::int64_t global_batch) {
  TrainConfig config;
  config.mesh.world_size = ranks;
  config.micro_batch_size = micro_batch;
  config.global_batch_size = global_batch;
  config.seq_length = 2;
  return config;
}

BatchReader Reader(const TrainConfig& config, int rank) {
  return BatchReader::Create(std::make_shared<NumberSequences>(), config, rank).value();
}

// The samples of a step, over all ranks.
std::vector<std::int32_t> SamplesOfStep(const TrainConfig& config, std::int64_t consumed) {
  std::vector<std::int32_t> samples;
  for (int rank = 0; rank < config.mesh.world_size; ++rank) {
    const auto batches = Reader(config, rank).ReadStep(consumed);
    for (const HostMicroBatch& batch : *batches) {
      for (std::size_t i = 0; i < batch.tokens.size(); i += 2) samples.push_back(batch.tokens[i]);
    }
  }
  std::ranges::sort(samples);
  return samples;
}

TEST(BatchReaderTest, FollowsTheFormula) {
  const TrainConfig config = Config(3, 2, 12);  // two micro-batches a rank
  const BatchReader reader = Reader(config, 1);
  const auto batches = reader.ReadStep(100);
  ASSERT_THAT(batches, IsOk());
  ASSERT_EQ(batches->size(), 2U);
  EXPECT_THAT((*batches)[0].tokens, ElementsAre(102, -102, 103, -103));
  EXPECT_THAT((*batches)[1].tokens, ElementsAre(108, -108, 109, -109));
  EXPECT_THAT((*batches)[1].labels, ElementsAre(109, kNoLabel, 110, kNoLabel));
  EXPECT_EQ((*batches)[0].batch, 2);
  EXPECT_EQ((*batches)[0].seq, 2);
  EXPECT_EQ(reader.SamplesOf(5), 60);
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(reader.SamplesOf(kMost), kMost);
}

// Sequence g is two examples of one token and padding, or one example of two, in turns.
class PackedSequences final : public SequenceSource {
 public:
  std::int64_t seq_length() const override { return 3; }
  std::int64_t num_samples() const override { return 1 << 20; }
  Result<Sequence> Read(std::int64_t g) const override {
    if (g % 2 == 0) {
      return Sequence{.tokens = {1, 2, 9},
                      .labels = {1, 2, kNoLabel},
                      .positions = {0, 0, kPaddingPosition},
                      .lengths = {1, 1}};
    }
    return Sequence{.tokens = {3, 4, 9},
                    .labels = {4, 5, kNoLabel},
                    .positions = {0, 1, kPaddingPosition},
                    .lengths = {2}};
  }
};

TEST(BatchReaderTest, ExamplesAreBoundedWithinTheMicroBatch) {
  TrainConfig config = Config(1, 3, 3);
  config.seq_length = 3;
  const auto reader = BatchReader::Create(std::make_shared<PackedSequences>(), config, 0);
  ASSERT_THAT(reader, IsOk());
  const auto batches = reader->ReadStep(0);
  ASSERT_THAT(batches, IsOk());
  const HostMicroBatch& batch = batches->front();
  EXPECT_THAT(batch.positions, ElementsAre(0, 0, -1, 0, 1, -1, 0, 0, -1));
  EXPECT_THAT(batch.lengths, ElementsAre(1, 1, 2, 1, 1));
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0, 1, 3, 6, 7, 9));
}

TEST(BatchReaderTest, AStepHasTheSameSamplesOnEveryMesh) {
  for (const std::int64_t consumed : {0, 24, 1000}) {
    std::vector<std::int32_t> want(24);
    std::iota(want.begin(), want.end(), static_cast<std::int32_t>(consumed));
    for (const int ranks : {1, 2, 3, 4, 6, 8, 12, 24}) {
      for (const std::int64_t micro_batch : {1, 2, 3, 4, 6, 8, 12, 24}) {
        if (24 % (ranks * micro_batch) != 0) continue;
        EXPECT_EQ(SamplesOfStep(Config(ranks, micro_batch, 24), consumed), want)
            << ranks << " ranks, micro-batches of " << micro_batch;
      }
    }
  }
}

// Four steps of 24, then a restart on another mesh with another batch size: no sample is left out
// or repeated.
TEST(BatchReaderTest, ResumesWhereItWasUnderAnotherBatchSize) {
  std::vector<std::int32_t> seen;
  std::int64_t consumed = 0;
  const auto train = [&](const TrainConfig& config, int steps) {
    for (int step = 0; step < steps; ++step) {
      const auto samples = SamplesOfStep(config, consumed);
      seen.insert(seen.end(), samples.begin(), samples.end());
      consumed += Reader(config, 0).SamplesOf(1);
    }
  };
  train(Config(4, 2, 24), 4);
  train(Config(2, 5, 30), 3);
  std::vector<std::int32_t> want(186);
  std::iota(want.begin(), want.end(), 0);
  EXPECT_EQ(seen, want);
  EXPECT_EQ(consumed, 186);
}

TEST(BatchReaderTest, ReadsAsManyAsAnEvaluationAsksFor) {
  const auto batches = Reader(Config(2, 1, 2), 1).Read(10, 3);
  ASSERT_THAT(batches, IsOk());
  ASSERT_EQ(batches->size(), 3U);
  EXPECT_THAT((*batches)[2].tokens, ElementsAre(15, -15));
}

TEST(BatchReaderTest, RefusesSequencesOfAnotherLength) {
  TrainConfig config = Config(1, 1, 1);
  config.seq_length = 3;
  EXPECT_THAT(BatchReader::Create(std::make_shared<NumberSequences>(), config, 0),
              FailsWith(ErrorKind::kShapeMismatch));
}

}  // namespace
}  // namespace ckpt::trainer
