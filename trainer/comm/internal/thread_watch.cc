#include "trainer/comm/internal/thread_watch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainer/comm/agreement.h"
#include "trainer/comm/internal/failed_exit_code.h"

namespace ckpt::trainer {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};
// A thread that looks so late was stopped together with the process.
constexpr std::chrono::seconds kStopped{2};

// It prints, as no caller could: the threads that could return do not.
void EndProcess(const Status& why) {
  std::fprintf(stderr, "the run ends: %s\n", InOneLine(why).c_str());
  std::fflush(stderr);
  std::_Exit(kFailedExitCode);
}

}  // namespace

void ThreadWatch::Add(int rank, const std::shared_ptr<CallTrack>& track) {
  const MutexLock lock(mutex_);
  std::erase_if(tracks_, [](const Watched& known) { return known.track.expired(); });
  tracks_.push_back({.rank = rank, .track = track});
}

void ThreadWatch::Start() {
  const MutexLock lock(mutex_);
  if (looks_) return;
  looks_.emplace(kPeriod, [this, last = Clock::now()]() mutable {
    const Clock::time_point now = Clock::now();
    if (now - std::exchange(last, now) >= kStopped) Resume(now);
    if (const Status status = Look(now); !status.ok()) EndProcess(status);
  });
}

void ThreadWatch::Cancel(const Status& why) {
  const MutexLock lock(mutex_);
  if (!cancelled_.ok()) return;
  cancelled_ = why;
  cancelled_at_ = Clock::now();
}

void ThreadWatch::Resume(Clock::time_point now) {
  const MutexLock lock(mutex_);
  resumed_at_ = now;
}

std::vector<ThreadWatch::Waiting> ThreadWatch::WhatIsUnderWay() {
  std::vector<Waiting> all;
  for (const Watched& known : tracks_) {
    std::shared_ptr<CallTrack> track = known.track.lock();
    const std::optional<CallTrack::Waiting> first = track ? track->First() : std::nullopt;
    if (first) all.push_back({.rank = known.rank, .track = std::move(track), .what = *first});
  }
  std::ranges::sort(all, {}, [](const Waiting& waiting) { return waiting.what.since; });
  return all;
}

Status ThreadWatch::Look(Clock::time_point now) {
  const MutexLock lock(mutex_);
  const std::vector<Waiting> all = WhatIsUnderWay();
  if (all.empty()) return OkStatus();
  const Clock::time_point since = std::max(all.front().what.since, resumed_at_);
  const bool is_late = timeout_.count() > 0 && now - since >= timeout_;
  const bool goes_on =
      !cancelled_.ok() && now - cancelled_at_ >= kPatience && now - since >= kPatience;
  if (!is_late && !goes_on) return OkStatus();
  std::string where;
  for (const Waiting& waiting : all) {
    where += fmt::format("{}rank {} waits in {}", where.empty() ? "" : "; ", waiting.rank,
                         waiting.track->TextOf(waiting.what.call));
  }
  if (goes_on) {
    return Error(ErrorKind::kCancelled, InOneLine(cancelled_))
        .Expected("what was under way to end")
        .Actual(std::move(where));
  }
  return Error(ErrorKind::kSystem, "a call in which ranks wait for each other does not end")
      .Expected(
          fmt::format("an end within {:g} s", std::chrono::duration<double>(timeout_).count()))
      .Actual(std::move(where))
      .Hint("if it only takes long, raise distributed_timeout_minutes");
}

}  // namespace ckpt::trainer
