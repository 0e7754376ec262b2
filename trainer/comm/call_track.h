// CallTrack: the calls of a group in which this rank waits for other ranks.
#ifndef CKPT_TRAINER_COMM_CALL_TRACK_H_
#define CKPT_TRAINER_COMM_CALL_TRACK_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/mutex.h"

namespace ckpt::trainer {

// The members of a group make the same calls in the same order, so the number of a call is the same
// on all of them, and tells whether a rank has come to it.
//
// Thread-safety: any thread.
class CallTrack {
 public:
  using Clock = std::chrono::steady_clock;

  struct Call {
    std::string_view name;         // a literal: "an all-gather"
    std::uint64_t size_bytes = 0;  // 0: it moves no data
    std::uint64_t number = 0;      // from 1
  };
  struct Waiting {
    Call call;
    Clock::time_point since;  // when it began, or the call before it ended
  };

  // `id` is the same on all members, and where ranks are processes tells their calls from all
  // others of the world. `members`: their ranks in the world.
  CallTrack(std::string id, std::vector<int> members)
      : id_(std::move(id)), members_(std::move(members)) {}

  // This rank comes to its next call. Those before it may be under way still.
  void Begin(std::string_view name, std::uint64_t size_bytes) CKPT_EXCLUDES(mutex_);
  // The first call under way ends.
  void End() CKPT_EXCLUDES(mutex_);

  // The first call under way, if there is one.
  [[nodiscard]] std::optional<Waiting> First() const CKPT_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t num_begun() const CKPT_EXCLUDES(mutex_);

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] const std::vector<int>& members() const { return members_; }
  // "an all-gather of 4000 bytes, call 17 of a group of 4 ranks"
  [[nodiscard]] std::string TextOf(const Call& call) const;

 private:
  const std::string id_;
  const std::vector<int> members_;
  mutable Mutex mutex_;
  std::uint64_t num_begun_ CKPT_GUARDED_BY(mutex_) = 0;
  std::deque<Call> under_way_ CKPT_GUARDED_BY(mutex_);
  Clock::time_point first_since_ CKPT_GUARDED_BY(mutex_);
};

// A call that blocks: on its track for its lifetime.
class TrackedCall {
 public:
  TrackedCall(CallTrack& track, std::string_view name, std::uint64_t size_bytes) : track_(track) {
    track_.Begin(name, size_bytes);
  }
  ~TrackedCall() { track_.End(); }
  TrackedCall(const TrackedCall&) = delete;
  TrackedCall& operator=(const TrackedCall&) = delete;

 private:
  CallTrack& track_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_CALL_TRACK_H_
