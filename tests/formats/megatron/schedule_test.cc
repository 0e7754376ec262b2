// Whether a run's learning rate stands where its optimizer does,
// with and without a batch in its arguments.
#include "formats/megatron/schedule.h"

#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::megatron {
namespace {

using testing::FailsWith;
using testing::IsOk;

struct Case {
  const char* name;
  std::optional<std::int64_t> batch;  // of the arguments
  std::int64_t iteration;
  std::int64_t consumed;
  std::int64_t position;  // of the schedule, in samples
  std::int64_t updates;
  const char* expected = nullptr;  // of the error; null: the run resumes
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

class CheckScheduleTest : public ::testing::TestWithParam<Case> {};

TEST_P(CheckScheduleTest, ComparesWithWhatIsThere) {
  const Case& c = GetParam();
  TrainingRun run;
  run.iteration = c.iteration;
  run.consumed_samples = c.consumed;
  run.schedule.num_steps = c.position;
  run.groups = {{.step = c.updates}};
  layout::Configuration args;
  if (c.batch) args["global_batch_size"] = *c.batch;
  EXPECT_EQ(StoredBatch(args), c.batch);

  const Status checked = CheckSchedule(run, args, "schedule");
  if (c.expected == nullptr) {
    EXPECT_THAT(checked, IsOk());
    return;
  }
  ASSERT_THAT(checked, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(checked.first().tensor, "schedule");
  EXPECT_EQ(checked.first().expected, c.expected);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, CheckScheduleTest,
    ::testing::Values(
        Case{"AsTheBatchSays", 4, 3, 12, 12, 3},
        // Two iterations were skipped: gradients overflowed.
        Case{"SkippedUpdates", 4, 5, 20, 12, 3},
        Case{"AheadOfTheOptimizer", 4, 3, 12, 12, 2, "2 updates of 4 samples"},
        Case{"BatchOfNone", 0, 3, 12, 12, 3, "3 updates of 0 samples"},
        Case{"AsTheIterationsSay", std::nullopt, 3, 12, 12, 3},
        Case{"SkippedUpdatesOfIterations", std::nullopt, 5, 20, 12, 3},
        Case{"BehindTheOptimizer", std::nullopt, 3, 12, 8, 3, "3 updates of 4 samples"},
        Case{"NoScheduleBesideSamples", std::nullopt, 3, 12, 0, 3, "3 updates of 4 samples"},
        // Of FSDP2 or verl: nothing counts samples.
        Case{"NoSamplesAtAll", std::nullopt, 3, 0, 0, 3},
        Case{"ScheduleWithoutSamples", std::nullopt, 3, 0, 12, 3,
             "equal batches, where 3 iterations consumed 0 samples"},
        Case{"UnequalBatches", std::nullopt, 3, 13, 13, 3,
             "equal batches, where 3 iterations consumed 13 samples"},
        Case{"NotBegun", std::nullopt, 0, 0, 0, 0}),
    [](const auto& test) { return std::string(test.param.name); });

// An argument that is no number says nothing.
TEST(StoredBatchTest, NeedsANumber) {
  EXPECT_EQ(StoredBatch({{"global_batch_size", layout::Value()}}), std::nullopt);
  EXPECT_EQ(StoredBatch({{"global_batch_size", "4"}}), std::nullopt);
}

}  // namespace
}  // namespace ckpt::megatron
