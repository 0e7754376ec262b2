#include "trainer/comm/internal/roll_call.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/text_number.h"

namespace ckpt::trainer {
namespace {

// "?<number> <track>" asks whether a rank has come to a call. "+<number> <track>\n<what it waits
// for>" answers that it has, "-…" that it has not.
constexpr char kAsk = '?';
constexpr char kHasCome = '+';
constexpr char kHasNotCome = '-';

constexpr std::size_t kMostNamed = 8;  // ranks in a message

using Seconds = std::chrono::duration<double>;

std::string NameOf(const CallTrack& track, std::uint64_t number) {
  return fmt::format("{} {}", number, track.id());
}

std::string RanksText(const std::vector<int>& ranks) {
  const std::span named = std::span(ranks).first(std::min(ranks.size(), kMostNamed));
  std::string text =
      fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(named, ", "));
  if (named.size() < ranks.size()) text += fmt::format(" and {} more", ranks.size() - named.size());
  return text;
}

}  // namespace

RollCall::RollCall(const Options& options, std::unique_ptr<Mailbox> mailbox)
    : options_(options), mailbox_(std::move(mailbox)) {}

void RollCall::Watch(std::shared_ptr<CallTrack> track) {
  const MutexLock lock(mutex_);
  std::string id = track->id();
  tracks_.insert_or_assign(std::move(id), std::move(track));
}

std::vector<std::shared_ptr<CallTrack>> RollCall::Tracks() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<CallTrack>> tracks;
  for (const auto& [id, track] : tracks_) tracks.push_back(track);
  return tracks;
}

Status RollCall::Look(Clock::time_point now) {
  while (const std::optional<Mailbox::Letter> letter = mailbox_->Take()) Receive(*letter, now);
  if (asked_) {
    const auto first = asked_->track->First();
    if (!first || first->call.number != asked_->call.number) asked_.reset();  // it ended after all
  }
  if (!asked_) {
    AskIfLate(now);
    return OkStatus();
  }
  const bool have_all_answered =
      asked_->answers.size() + 1 == static_cast<std::size_t>(mailbox_->size());
  const bool may_speak = now >= asked_->not_before && (have_all_answered || now >= asked_->until);
  return may_speak ? Verdict() : OkStatus();
}

void RollCall::AskIfLate(Clock::time_point now) {
  if (now < quiet_until_) return;
  std::optional<CallTrack::Waiting> longest;
  std::shared_ptr<CallTrack> of;
  for (const std::shared_ptr<CallTrack>& track : Tracks()) {
    const auto first = track->First();
    if (!first || (longest && longest->since <= first->since)) continue;
    longest = first;
    of = track;
  }
  if (!longest || now - longest->since < options_.timeout) return;
  asked_ = {.track = of,
            .call = longest->call,
            .not_before = now,
            .until = now + options_.answer_time,
            .answers = {}};
  const std::string question = kAsk + NameOf(*of, longest->call.number);
  for (int rank = 0; rank < mailbox_->size(); ++rank) {
    if (rank != mailbox_->rank()) mailbox_->Send(rank, question);
  }
}

void RollCall::Receive(const Mailbox::Letter& letter, Clock::time_point now) {
  const std::string_view text = letter.text;
  if (text.empty()) return;
  if (text.front() == kAsk) {
    mailbox_->Send(letter.from, AnswerTo(text.substr(1), now));
    // Enough for the other rank to get its answers, and to end all processes.
    quiet_until_ = now + 2 * options_.answer_time;
    if (asked_ && letter.from < mailbox_->rank()) asked_->not_before = quiet_until_;
    return;
  }
  const std::size_t end = text.find('\n');
  if (!asked_ || end == std::string_view::npos) return;
  // It may answer an earlier question.
  if (text.substr(1, end - 1) != NameOf(*asked_->track, asked_->call.number)) return;
  asked_->answers[letter.from] = {.has_come = text.front() == kHasCome,
                                  .waits_for = std::string(text.substr(end + 1))};
}

std::string RollCall::AnswerTo(std::string_view question, Clock::time_point now) {
  std::string_view rest = question;
  const std::optional<std::uint64_t> number = TakeNumber<std::uint64_t>(rest);
  bool has_come = false;
  std::string waits_for;
  Clock::time_point since = Clock::time_point::max();
  for (const std::shared_ptr<CallTrack>& track : Tracks()) {
    if (number && question == NameOf(*track, *number)) has_come = track->num_begun() >= *number;
    const auto first = track->First();
    if (!first || first->since >= since) continue;
    since = first->since;
    waits_for =
        fmt::format("{:.1f} s in {}", Seconds(now - since).count(), track->TextOf(first->call));
  }
  return fmt::format("{}{}\n{}", has_come ? kHasCome : kHasNotCome, question, waits_for);
}

Status RollCall::Verdict() const {
  // Of the whole world: other members may wait for one that is not a member.
  std::vector<int> silent;
  std::vector<int> busy, elsewhere;
  std::string where;
  for (int rank = 0; rank < mailbox_->size(); ++rank) {
    if (rank == mailbox_->rank()) continue;
    const auto found = asked_->answers.find(rank);
    if (found == asked_->answers.end()) {
      silent.push_back(rank);
      continue;
    }
    const Answer& answer = found->second;
    const std::vector<int>& members = asked_->track->members();
    if (answer.has_come || std::ranges::find(members, rank) == members.end()) continue;
    (answer.waits_for.empty() ? busy : elsewhere).push_back(rank);
    if (!answer.waits_for.empty() && elsewhere.size() <= kMostNamed) {
      where += fmt::format("{}rank {} has not come to it, and has waited {}",
                           where.empty() ? "" : "; ", rank, answer.waits_for);
    }
  }
  std::vector<int> missing = silent;
  missing.insert(missing.end(), busy.begin(), busy.end());
  std::ranges::sort(missing);
  std::vector<std::string> facts;
  if (!silent.empty()) facts.push_back("no answer from " + RanksText(silent));
  if (!busy.empty()) facts.push_back("at work, and not come to it: " + RanksText(busy));
  if (!where.empty()) facts.push_back(std::move(where));
  if (facts.empty()) facts.emplace_back("every rank has come to it");
  const std::string message =
      !missing.empty()
          ? fmt::format("{} {} missing", RanksText(missing), missing.size() == 1 ? "is" : "are")
      : !elsewhere.empty() ? "ranks wait for each other"
                           : "a call that all ranks have come to does not end";
  return Error(ErrorKind::kSystem, message)
      .Expected(fmt::format("{}, to end within {} s", asked_->track->TextOf(asked_->call),
                            Seconds(options_.timeout).count()))
      .Actual(fmt::format("{}", fmt::join(facts, "; ")))
      .Hint(silent.empty() ? "if it only takes long, raise distributed_timeout_minutes"
                           : "a rank that does not answer was stopped or killed, or lost its host");
}

}  // namespace ckpt::trainer
