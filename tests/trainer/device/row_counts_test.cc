// Counts that are read while the queue that computed them goes on.
#include "trainer/device/row_counts.h"

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/device/cpu/host_device.h"

namespace ckpt::trainer {
namespace {

using ::ckpt::testing::FailsWith;
using ::testing::ElementsAre;

Tensor ViewOf(std::vector<std::int64_t>& counts) {
  return {counts.data(), DType::kInt64, {static_cast<std::int64_t>(counts.size())}};
}

std::vector<std::int64_t> OnHost(const RowCounts& counts) {
  const auto read = counts.OnHost();
  EXPECT_THAT(read, ckpt::testing::IsOk());
  if (!read.ok()) return {};
  return {read->begin(), read->end()};
}

class RowCountsTest : public ::testing::Test {
 protected:
  void Enqueue(std::function<Status()> work) {
    static_cast<HostQueue&>(*queue_).Enqueue(std::move(work));
  }

  std::unique_ptr<Device> device_ =
      MakeHostDevice({.queues = QueueMode::kThreads, .delay_seed = 5});
  std::unique_ptr<Queue> queue_ = device_->MakeQueue("compute");
};

// Whoever waits for the whole queue would wait for ever.
TEST_F(RowCountsTest, WaitForTheWorkBeforeThemAlone) {
  std::vector<std::int64_t> counts = {0, 0};
  std::promise<void> may_end;
  CountsReader reader(*device_, 2);
  Enqueue([&] {
    counts = {3, 4};
    return OkStatus();
  });
  const RowCounts read = reader.Read(*queue_, ViewOf(counts));
  Enqueue([ended = may_end.get_future().share()] {
    ended.wait();
    return OkStatus();
  });
  EXPECT_THAT(OnHost(read), ElementsAre(3, 4));
  may_end.set_value();
  EXPECT_THAT(queue_->Synchronize(), ckpt::testing::IsOk());
}

TEST_F(RowCountsTest, KeepTheirValuesWhileTheyAreHeld) {
  std::vector<std::int64_t> counts = {0};
  CountsReader reader(*device_, 1);
  std::vector<RowCounts> held;
  for (std::int64_t value = 1; value <= 20; ++value) {
    Enqueue([&counts, value] {
      counts = {value};
      return OkStatus();
    });
    const RowCounts read = reader.Read(*queue_, ViewOf(counts));
    EXPECT_THAT(OnHost(read), ElementsAre(value));
    if (value % 3 == 0) held.push_back(read);
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_THAT(OnHost(held[i]), ElementsAre(3 * (static_cast<std::int64_t>(i) + 1)));
  }
}

TEST_F(RowCountsTest, TellWhatFailedBeforeThem) {
  std::vector<std::int64_t> counts = {7};
  CountsReader reader(*device_, 1);
  Enqueue([]() -> Status { return Error(ErrorKind::kCancelled, "a rank is gone"); });
  EXPECT_THAT(reader.Read(*queue_, ViewOf(counts)).OnHost(), FailsWith(ErrorKind::kCancelled));
}

}  // namespace
}  // namespace ckpt::trainer
