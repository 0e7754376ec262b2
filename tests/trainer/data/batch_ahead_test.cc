#include "trainer/data/batch_ahead.h"

#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/comm/no_more_threads.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;

// Sequence g is (g). Number 6 cannot be read.
class Numbers final : public SequenceSource {
 public:
  std::int64_t seq_length() const override { return 1; }
  std::int64_t num_samples() const override { return 1 << 20; }
  Result<Sequence> Read(std::int64_t g) const override {
    const std::lock_guard lock(mutex_);
    read_.push_back(g);
    threads_.push_back(std::this_thread::get_id());
    if (g == 6) return Error(ErrorKind::kBadItem, "sample 6");
    return Sequence{.tokens = {static_cast<std::int32_t>(g)}, .labels = {kNoLabel}};
  }

  std::vector<std::int64_t> read() const {
    const std::lock_guard lock(mutex_);
    return read_;
  }
  std::vector<std::thread::id> threads() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> read_;
  mutable std::vector<std::thread::id> threads_;
};

class BatchAheadTest : public ::testing::Test {
 protected:
  BatchAheadTest() {
    TrainConfig config;
    config.micro_batch_size = 1;
    config.global_batch_size = 2;
    config.seq_length = 1;
    reader_.emplace(BatchReader::Create(numbers_, config, 0).value());
  }

  // The numbers of a step.
  static std::vector<std::int32_t> Take(BatchAhead& ahead, std::int64_t consumed) {
    const auto batch = ahead.Take(consumed);
    EXPECT_THAT(batch, IsOk());
    std::vector<std::int32_t> numbers;
    for (const HostMicroBatch& one : *batch) numbers.push_back(one.tokens[0]);
    return numbers;
  }

  const std::shared_ptr<Numbers> numbers_ = std::make_shared<Numbers>();
  std::optional<BatchReader> reader_;
};

TEST_F(BatchAheadTest, ReadsEachStepOnceAndTheNextOnAnotherThread) {
  {
    BatchAhead ahead(*reader_, 4);
    EXPECT_THAT(Take(ahead, 0), ElementsAre(0, 1));
    EXPECT_THAT(Take(ahead, 2), ElementsAre(2, 3));
  }
  EXPECT_THAT(numbers_->read(), ElementsAre(0, 1, 2, 3)) << "and nothing from the end on";
  const std::vector<std::thread::id> threads = numbers_->threads();
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_NE(threads[2], std::this_thread::get_id());
}

TEST_F(BatchAheadTest, AnotherStepThanTheNextIsReadToo) {
  BatchAhead ahead(*reader_, 100);
  EXPECT_THAT(Take(ahead, 0), ElementsAre(0, 1));
  EXPECT_THAT(Take(ahead, 10), ElementsAre(10, 11));
  EXPECT_THAT(Take(ahead, 12), ElementsAre(12, 13));
}

TEST_F(BatchAheadTest, AnErrorBelongsToItsStep) {
  BatchAhead ahead(*reader_, 100);
  EXPECT_THAT(Take(ahead, 2), ElementsAre(2, 3));
  EXPECT_THAT(Take(ahead, 4), ElementsAre(4, 5));
  for (int i = 0; i < 2; ++i) {
    const auto bad = ahead.Take(6);
    ASSERT_THAT(bad.status(), FailsWith(ErrorKind::kBadItem));
  }
  EXPECT_THAT(Take(ahead, 8), ElementsAre(8, 9));
}

// The step that was read ahead for another one is not the step behind it.
TEST_F(BatchAheadTest, WhatWasReadAheadIsDroppedWithAnotherStep) {
  BatchAhead failed(*reader_, 100);
  EXPECT_THAT(Take(failed, 0), ElementsAre(0, 1));
  EXPECT_THAT(failed.Take(6), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(Take(failed, 8), ElementsAre(8, 9));

  BatchAhead ended(*reader_, 12);
  EXPECT_THAT(Take(ended, 0), ElementsAre(0, 1));
  EXPECT_THAT(Take(ended, 10), ElementsAre(10, 11));
  EXPECT_THAT(Take(ended, 12), ElementsAre(12, 13));
}

TEST_F(BatchAheadTest, ReadsWhenItIsAskedWhereThereIsNoThread) {
  const testing::NoMoreThreads limit;
  BatchAhead ahead(*reader_, 100);
  EXPECT_THAT(Take(ahead, 0), ElementsAre(0, 1));
  EXPECT_THAT(Take(ahead, 2), ElementsAre(2, 3));
}

}  // namespace
}  // namespace ckpt::trainer
