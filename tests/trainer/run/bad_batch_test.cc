#include "trainer/run/internal/bad_batch.h"

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/mutex.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/small_run.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/data/sequence_source.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using trainer::RankTrainer;

constexpr std::int32_t kPoison = 7;

// Sequences of token 1, but for one.
class OnePoisonedSample final : public trainer::SequenceSource {
 public:
  explicit OnePoisonedSample(std::int64_t sample) : sample_(sample) {}
  std::int64_t seq_length() const override { return 4; }
  std::int64_t num_samples() const override { return 1 << 20; }
  Result<trainer::Sequence> Read(std::int64_t global_sample) const override {
    return trainer::Sequence{
        .tokens = std::vector<std::int32_t>(4, global_sample == sample_ ? kPoison : 1),
        .labels = std::vector<std::int32_t>(4, 2)};
  }

 private:
  const std::int64_t sample_;
};

// Weights as they are drawn, but the poison's embedding is not a number.
Status PoisonWeights(RankTrainer& trainer) {
  return trainer.SetWeights([](const trainer::ParamSpec& spec, std::int64_t row_begin,
                               std::int64_t rows, std::span<float> values) {
    std::ranges::fill(values, 0.01F);
    const bool holds_it = row_begin <= kPoison && kPoison < row_begin + rows;
    if (spec.name != "embedding.word_embeddings.weight" || !holds_it) return OkStatus();
    const std::size_t row_elems = values.size() / static_cast<std::size_t>(rows);
    std::ranges::fill(
        values.subspan(static_cast<std::size_t>(kPoison - row_begin) * row_elems, row_elems),
        std::numeric_limits<float>::quiet_NaN());
    return OkStatus();
  });
}

// What every rank says about step 3, which begins at global sample 16.
std::vector<Status> NamesOf(const trainer::TrainConfig& config, std::int64_t poisoned_sample) {
  std::vector<Status> names(static_cast<std::size_t>(config.mesh.world_size));
  const auto source = std::make_shared<OnePoisonedSample>(poisoned_sample);
  const Status ran =
      trainer::RunRanks(config.mesh.world_size, [&](trainer::HostGroup& world) -> Status {
        const auto device = trainer::MakeHostDevice({});
        const auto ops = trainer::MakeHostOps({.threads = 1});
        CKPT_ASSIGN_OR_RETURN(
            const auto trainer,
            RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
        CKPT_RETURN_IF_ERROR(PoisonWeights(*trainer));
        CKPT_ASSIGN_OR_RETURN(const auto batches,
                              trainer::BatchReader::Create(source, config, world.rank()));
        CKPT_ASSIGN_OR_RETURN(const auto batch, batches.ReadStep(16));
        const Status failure = trainer->Step(batch).status();
        EXPECT_THAT(failure, FailsWith(ErrorKind::kValueMismatch));
        names[static_cast<std::size_t>(world.rank())] =
            NameBadBatch(failure, {.step = 3, .consumed_samples = 16}, batches, *trainer, world);
        return OkStatus();
      });
  EXPECT_THAT(ran, IsOk());
  return names;
}

TEST(BadBatchTest, EveryRankNamesTheSamples) {
  // Two micro-batches of two sequences on each of two ranks: sample 16 + 5 is of rank 0's second
  // one.
  const auto config = testing::SmallMoeRun(2, {{"micro_batch_size", 2}, {"global_batch_size", 8}});
  ASSERT_THAT(config, IsOk());
  for (const Status& name : NamesOf(*config, 21)) {
    EXPECT_THAT(name, FailsWith(ErrorKind::kValueMismatch));
    EXPECT_THAT(name.ToString(), HasSubstr("the loss is not finite in step 3"));
    EXPECT_EQ(name.first().actual, "micro-batch 1 of rank 0, global samples 20 to 21");
  }
  for (const Status& name : NamesOf(*config, 18)) {
    EXPECT_EQ(name.first().actual, "micro-batch 0 of rank 1, global samples 18 to 19");
  }
}

}  // namespace
}  // namespace ckpt::train
