// RollCall: which ranks are missing where others wait for them.
#ifndef CKPT_TRAINER_COMM_INTERNAL_ROLL_CALL_H_
#define CKPT_TRAINER_COMM_INTERNAL_ROLL_CALL_H_

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/status.h"
#include "trainer/comm/call_track.h"

namespace ckpt::trainer {

// Letters between the ranks of the world, which never wait for their receiver.
class Mailbox {
 public:
  struct Letter {
    int from = 0;
    std::string text;
  };

  virtual ~Mailbox() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // A letter that cannot be sent is lost: its receiver does not answer.
  virtual void Send(int to, std::string_view text) = 0;
  virtual std::optional<Letter> Take() = 0;
};

// A rank whose call has not ended after the time-out asks all ranks whether they have come to it,
// and what they wait for themselves. Each answers by a thread of its own, so a rank that is late
// answers, and one that was stopped or killed does not: no step of this needs its help.
//
// Of several ranks that wait, the first one to ask speaks; of two at once, the lower one.
//
// Thread-safety: `Watch` from any thread, `Look` from one.
class RollCall {
 public:
  using Clock = CallTrack::Clock;

  struct Options {
    std::chrono::milliseconds timeout;
    std::chrono::milliseconds answer_time{3000};  // for all ranks to answer
  };

  RollCall(const Options& options, std::unique_ptr<Mailbox> mailbox);

  // Calls of this track are waited for and asked about from now on.
  void Watch(std::shared_ptr<CallTrack> track) CKPT_EXCLUDES(mutex_);

  // Answers what other ranks ask, and asks if it is time. To be called several times in the shorter
  // of the times of `options`. Errors: kSystem (a call did not end in time: names it, and the ranks
  // that are missing).
  Status Look(Clock::time_point now) CKPT_EXCLUDES(mutex_);

 private:
  struct Answer {
    bool has_come = false;
    std::string waits_for;  // empty: the rank is in no call
  };
  struct Question {
    std::shared_ptr<CallTrack> track;
    CallTrack::Call call;
    Clock::time_point not_before;  // others may speak first
    Clock::time_point until;
    std::map<int, Answer> answers;
  };

  void Receive(const Mailbox::Letter& letter, Clock::time_point now) CKPT_EXCLUDES(mutex_);
  std::string AnswerTo(std::string_view question, Clock::time_point now) CKPT_EXCLUDES(mutex_);
  // Asks about the call that has waited longest, if that is too long.
  void AskIfLate(Clock::time_point now) CKPT_EXCLUDES(mutex_);
  [[nodiscard]] Status Verdict() const;
  [[nodiscard]] std::vector<std::shared_ptr<CallTrack>> Tracks() const CKPT_EXCLUDES(mutex_);

  const Options options_;
  const std::unique_ptr<Mailbox> mailbox_;
  std::optional<Question> asked_;
  Clock::time_point quiet_until_ = Clock::time_point::min();  // another rank has asked
  mutable Mutex mutex_;
  // Also those whose groups are gone: a rank that still waits in one hears that this one has come.
  std::map<std::string, std::shared_ptr<CallTrack>, std::less<>> tracks_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_ROLL_CALL_H_
