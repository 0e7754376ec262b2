#include "trainer/device/peer/internal/peer_board.h"

#include <algorithm>
#include <utility>

#include "trainer/comm/same_call.h"

namespace ckpt::trainer {
namespace {

Status CheckCalls(const std::vector<PeerOperand>& operands) {
  const auto call_of = [&](std::size_t rank) {
    return RankCall{.rank = static_cast<int>(rank),
                    .name = operands[rank].call,
                    .size_bytes = operands[rank].size_bytes};
  };
  for (std::size_t rank = 1; rank < operands.size(); ++rank) {
    CKPT_RETURN_IF_ERROR(CheckSameCall(call_of(0), call_of(rank)));
  }
  return OkStatus();
}

}  // namespace

template <typename Predicate>
bool PeerBoard::AllOthers(int rank, const Predicate& holds) const {
  for (std::size_t other = 0; other < ranks_.size(); ++other) {
    if (other != static_cast<std::size_t>(rank) && !holds(ranks_[other])) return false;
  }
  return true;
}

std::vector<Event> PeerBoard::DoneEvents(int rank, std::uint64_t calls) const {
  std::vector<Event> events(ranks_.size());
  for (std::size_t other = 0; other < ranks_.size(); ++other) {
    const Rank& peer = ranks_[other];
    if (other == static_cast<std::size_t>(rank) || peer.num_done == 0) continue;
    std::uint64_t call = std::min(calls, peer.num_done);
    if (call + kRemembered <= peer.num_done) call = peer.num_done - kRemembered + 1;
    events[other] = peer.done[call % kRemembered];
  }
  return events;
}

Result<std::vector<PeerOperand>> PeerBoard::Show(int rank, PeerOperand mine) {
  MutexLock lock(mutex_);
  if (!cancelled_.ok()) return cancelled_;
  Rank& own = At(rank);
  const std::uint64_t call = ++own.num_shown;
  own.operands[call % 2] = std::move(mine);
  changed_.notify_all();
  while (!AllOthers(rank, [call](const Rank& peer) { return peer.num_shown >= call; })) {
    lock.Wait(changed_);
    if (!cancelled_.ok()) return cancelled_;
  }
  std::vector<PeerOperand> operands;
  for (const Rank& peer : ranks_) operands.push_back(peer.operands[call % 2]);
  own.num_seen = call;
  // Every rank sees a difference, so none of them reads.
  if (Status status = CheckCalls(operands); !status.ok()) {
    own.num_done = call;
    own.done[call % kRemembered] = Event();
    changed_.notify_all();
    return status;
  }
  return operands;
}

void PeerBoard::Done(int rank, Event event) {
  const MutexLock lock(mutex_);
  Rank& own = At(rank);
  own.num_done = own.num_seen;
  own.done[own.num_done % kRemembered] = std::move(event);
  changed_.notify_all();
}

Result<std::vector<Event>> PeerBoard::AwaitReaders(int rank, std::uint64_t calls) {
  MutexLock lock(mutex_);
  while (!AllOthers(rank, [calls](const Rank& peer) { return peer.num_done >= calls; })) {
    if (!cancelled_.ok()) return cancelled_;
    lock.Wait(changed_);
  }
  return DoneEvents(rank, calls);
}

std::vector<Event> PeerBoard::Leave(int rank) {
  MutexLock lock(mutex_);
  const std::uint64_t calls = At(rank).num_shown;
  while (cancelled_.ok() &&
         !AllOthers(rank, [calls](const Rank& peer) { return peer.num_seen >= calls; })) {
    lock.Wait(changed_);
  }
  // A rank that has seen an operand is about to enqueue its reads.
  while (!AllOthers(rank, [](const Rank& peer) { return peer.num_done == peer.num_seen; })) {
    lock.Wait(changed_);
  }
  return DoneEvents(rank, calls);
}

void PeerBoard::Cancel(const Status& why) {
  const MutexLock lock(mutex_);
  if (cancelled_.ok()) cancelled_ = why;
  changed_.notify_all();
}

}  // namespace ckpt::trainer
