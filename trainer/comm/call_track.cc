#include "trainer/comm/call_track.h"

#include <fmt/format.h>

#include "core/base/check.h"

namespace ckpt::trainer {

void CallTrack::Begin(std::string_view name, std::uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  if (under_way_.empty()) first_since_ = Clock::now();
  under_way_.push_back({.name = name, .size_bytes = size_bytes, .number = ++num_begun_});
}

void CallTrack::End() {
  const MutexLock lock(mutex_);
  CKPT_CHECK(!under_way_.empty());
  under_way_.pop_front();
  first_since_ = Clock::now();
}

std::optional<CallTrack::Waiting> CallTrack::First() const {
  const MutexLock lock(mutex_);
  if (under_way_.empty()) return std::nullopt;
  return Waiting{.call = under_way_.front(), .since = first_since_};
}

std::uint64_t CallTrack::num_begun() const {
  const MutexLock lock(mutex_);
  return num_begun_;
}

std::string CallTrack::TextOf(const Call& call) const {
  const std::string size = call.size_bytes == 0 ? "" : fmt::format(" of {} bytes", call.size_bytes);
  return fmt::format("{}{}, call {} of a group of {} ranks", call.name, size, call.number,
                     members_.size());
}

}  // namespace ckpt::trainer
