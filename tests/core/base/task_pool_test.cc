#include "core/base/task_pool.h"

#include <atomic>
#include <cstddef>
#include <new>
#include <sched.h>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(TaskPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> runs(100);
    EXPECT_THAT(RunTasks(runs.size(), threads, {},
                         [&](std::size_t task, std::size_t worker) {
                           EXPECT_LT(worker, static_cast<std::size_t>(threads));
                           ++runs[task];
                           return OkStatus();
                         }),
                IsOk());
    for (const auto& run : runs) EXPECT_EQ(run, 1);
  }
}

TEST(TaskPool, ReportsTheFailureAndStartsNothingAfterIt) {
  std::atomic<int> started = 0;
  const Status status = RunTasks(1000, 1, {}, [&](std::size_t task, std::size_t) {
    ++started;
    return task == 3 ? Error(ErrorKind::kIo, "task 3") : OkStatus();
  });
  EXPECT_THAT(status, FailsWith(ErrorKind::kIo));
  EXPECT_EQ(started, 4);
}

// As a batch system does.
TEST(TaskPool, HasAsManyThreadsAsTheProcessMayUseCores) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_EQ(DefaultThreads(), CPU_COUNT(&allowed));
  std::size_t first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  int threads = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);  // of this thread alone
    threads = DefaultThreads();
  }).join();
  EXPECT_EQ(threads, 1);
}

TEST(TaskPool, NoTasksIsFine) {
  EXPECT_THAT(RunTasks(0, 4, {}, [](std::size_t, std::size_t) { return OkStatus(); }), IsOk());
}

TEST(TaskPool, TurnsWhatATaskThrowsIntoItsFailure) {
  for (const int threads : {1, 4}) {
    EXPECT_THAT(RunTasks(50, threads, {},
                         [](std::size_t, std::size_t) -> Status { throw std::bad_alloc(); }),
                FailsWith(ErrorKind::kSystem));
    EXPECT_THAT(
        RunTasks(50, threads, {},
                 [](std::size_t, std::size_t) -> Status { throw std::runtime_error("bug"); }),
        FailsWith(ErrorKind::kInternal));
  }
}

TEST(TaskPool, StopsOnRequest) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(RunTasks(5, 2, stop.get_token(), [](std::size_t, std::size_t) { return OkStatus(); }),
              FailsWith(ErrorKind::kCancelled));
}

}  // namespace
}  // namespace ckpt
