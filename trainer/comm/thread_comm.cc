#include "trainer/comm/thread_comm.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/task_pool.h"
#include "core/base/thrown.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/internal/copy_bytes.h"
#include "trainer/comm/internal/split_members.h"
#include "trainer/comm/internal/thread_group.h"
#include "trainer/comm/internal/thread_watch.h"

namespace ckpt::trainer {

// All groups of one world, so that giving up reaches each of them.
class ThreadWorld {
 public:
  ThreadWorld(int num_ranks, std::chrono::milliseconds timeout)
      : should_spin_(DefaultThreads() >= num_ranks), watch_(timeout) {}

  std::shared_ptr<ThreadGroup> MakeGroup(int size) CKPT_EXCLUDES(mutex_) {
    auto group = std::make_shared<ThreadGroup>(size, should_spin_);
    const MutexLock lock(mutex_);
    std::erase_if(groups_, [](const auto& known) { return known.expired(); });
    groups_.push_back(group);
    if (!cancelled_.ok()) group->Cancel(cancelled_);
    return group;
  }

  // A rank leaves a group. If that is because a rank gave up, the others are told its reason.
  void Leave(ThreadGroup& group, int rank) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const Status gone = Error(ErrorKind::kCancelled, "rank " + std::to_string(rank) + " is gone");
    group.Cancel(cancelled_.ok() ? gone : cancelled_);
  }

  void Abort(const Status& why) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!cancelled_.ok()) return;
    cancelled_ = Error(ErrorKind::kCancelled, "a rank gave up: " + InOneLine(why));
    for (const std::weak_ptr<ThreadGroup>& known : groups_) {
      if (const auto group = known.lock()) group->Cancel(cancelled_);
    }
    watch_.Cancel(cancelled_);
  }

  ThreadWatch& watch() { return watch_; }

 private:
  const bool should_spin_;
  Mutex mutex_;  // locked before a group's mutex
  std::vector<std::weak_ptr<ThreadGroup>> groups_ CKPT_GUARDED_BY(mutex_);
  Status cancelled_ CKPT_GUARDED_BY(mutex_);
  ThreadWatch watch_;
};

namespace {

// Parts at the end of its scope, also if what lies before throws: the others wait for every rank
// that has met.
class Parting {
 public:
  explicit Parting(ThreadGroup& group) : group_(group) {}
  ~Parting() { group_.Part(); }
  Parting(const Parting&) = delete;
  Parting& operator=(const Parting&) = delete;

 private:
  ThreadGroup& group_;
};

class ThreadHostGroup final : public HostGroup {
 public:
  // `members`: their ranks in the world.
  ThreadHostGroup(std::shared_ptr<ThreadWorld> world, std::shared_ptr<ThreadGroup> group, int rank,
                  std::vector<int> members)
      : world_(std::move(world)),
        group_(std::move(group)),
        rank_(rank),
        members_(std::move(members)) {}
  // The rank leaves its group: every later meeting of the group fails.
  ~ThreadHostGroup() override { world_->Leave(*group_, rank_); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  Result<std::shared_ptr<RankShared>> Share(std::shared_ptr<RankShared> mine) override;
  Result<std::unique_ptr<HostGroup>> Split(int color, int key) override;
  Result<std::unique_ptr<HostGroup>> Separate() override;
  void Abort(const Status& why) override { world_->Abort(why); }
  [[nodiscard]] bool abort_ends_processes() const override { return false; }
  std::shared_ptr<CallTrack> MakeTrack(std::string_view kind) override {
    auto track = std::make_shared<CallTrack>(std::string(kind), members_);
    world_->watch().Add(members_[static_cast<std::size_t>(rank_)], track);
    world_->watch().Start();
    return track;
  }

  Status Exchange(ByteSpan mine, MutableByteSpan all) override;
  Status ExchangeParts(ByteSpan full, const UseParts& use) override;
  Status ExchangeRows(const RowExchange& rows) override;
  Status Barrier() override {
    CKPT_RETURN_IF_ERROR(group_->Meet(rank_, {.call = "Barrier"}));
    group_->Part();
    return OkStatus();
  }

 private:
  const std::shared_ptr<ThreadWorld> world_;
  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
  const std::vector<int> members_;
};

// The other ranks come in the order that begins with the next one, so that the ranks do not all
// read the same memory at once.
Status ThreadHostGroup::Exchange(ByteSpan mine, MutableByteSpan all) {
  CKPT_CHECK(all.size() == mine.size() * static_cast<std::size_t>(size()));
  CKPT_RETURN_IF_ERROR(
      group_->Meet(rank_, {.call = "Exchange", .size_bytes = mine.size(), .data = mine.data()}));
  const Parting parting(*group_);
  for (int i = 0; i < size(); ++i) {
    const int peer = (rank_ + i) % size();
    CopyBytes(group_->shown(peer).data, all.data() + static_cast<std::size_t>(peer) * mine.size(),
              mine.size());
  }
  return OkStatus();
}

// A rank writes only its own part of its own `full`, which no other rank reads.
Status ThreadHostGroup::ExchangeParts(ByteSpan full, const UseParts& use) {
  const std::uint64_t part_bytes = full.size() / static_cast<std::size_t>(size());
  CKPT_CHECK(part_bytes * static_cast<std::size_t>(size()) == full.size());
  CKPT_RETURN_IF_ERROR(group_->Meet(
      rank_, {.call = "ExchangeParts", .size_bytes = full.size(), .data = full.data()}));
  const Parting parting(*group_);
  std::vector<const std::byte*> parts;
  for (int peer = 0; peer < size(); ++peer) {
    parts.push_back(group_->shown(peer).data + static_cast<std::uint64_t>(rank_) * part_bytes);
  }
  use(parts, 0, part_bytes);
  return OkStatus();
}

Status ThreadHostGroup::ExchangeRows(const RowExchange& rows) {
  CKPT_RETURN_IF_ERROR(
      group_->Meet(rank_, {.call = "ExchangeRows", .size_bytes = rows.row_bytes, .rows = &rows}));
  const Parting parting(*group_);
  std::vector<const RowExchange*> all;
  for (int peer = 0; peer < size(); ++peer) all.push_back(group_->shown(peer).rows);
  return ReceiveRows(rank_, rows, all);
}

Result<std::shared_ptr<RankShared>> ThreadHostGroup::Share(std::shared_ptr<RankShared> mine) {
  CKPT_RETURN_IF_ERROR(group_->Meet(rank_, {.call = "Share", .shared = &mine}));
  std::shared_ptr<RankShared> shared = *group_->shown(0).shared;
  group_->Part();
  if (rank_ == 0) group_->CancelToo(shared);
  return shared;
}

Result<std::unique_ptr<HostGroup>> ThreadHostGroup::Split(int color, int key) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<int> members, SplitMembers(*this, color, key));
  const auto own = std::ranges::find(members, rank_) - members.begin();
  // The first member makes the group. The others take it before the ranks part.
  std::shared_ptr<ThreadGroup> group;
  if (own == 0) group = world_->MakeGroup(static_cast<int>(members.size()));
  CKPT_RETURN_IF_ERROR(group_->Meet(rank_, {.call = "Split", .made = &group}));
  const std::shared_ptr<ThreadGroup> made = *group_->shown(members.front()).made;
  group_->Part();
  std::vector<int> in_world;
  for (const int member : members) {
    in_world.push_back(members_[static_cast<std::size_t>(member)]);
  }
  return std::unique_ptr<HostGroup>(
      std::make_unique<ThreadHostGroup>(world_, made, static_cast<int>(own), std::move(in_world)));
}

Result<std::unique_ptr<HostGroup>> ThreadHostGroup::Separate() {
  std::shared_ptr<ThreadWorld> world;
  std::shared_ptr<ThreadGroup> group;
  if (rank_ == 0) {
    world = std::make_shared<ThreadWorld>(size(), world_->watch().timeout());
    group = world->MakeGroup(size());
  }
  CKPT_RETURN_IF_ERROR(
      group_->Meet(rank_, {.call = "Separate", .made = &group, .made_world = &world}));
  const std::shared_ptr<ThreadWorld> made_world = *group_->shown(0).made_world;
  const std::shared_ptr<ThreadGroup> made = *group_->shown(0).made;
  group_->Part();
  return std::unique_ptr<HostGroup>(
      std::make_unique<ThreadHostGroup>(made_world, made, rank_, members_));
}

}  // namespace

std::vector<std::unique_ptr<HostGroup>> MakeThreadWorld(int num_ranks,
                                                        std::chrono::milliseconds timeout) {
  CKPT_CHECK(num_ranks > 0);
  auto world = std::make_shared<ThreadWorld>(num_ranks, timeout);
  const std::shared_ptr<ThreadGroup> group = world->MakeGroup(num_ranks);
  std::vector<int> members(static_cast<std::size_t>(num_ranks));
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<HostGroup>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.push_back(std::make_unique<ThreadHostGroup>(world, group, rank, members));
  }
  return ranks;
}

Status RunRanks(int num_ranks, const std::function<Status(HostGroup& world)>& body,
                std::chrono::milliseconds timeout) {
  std::vector<std::unique_ptr<HostGroup>> worlds = MakeThreadWorld(num_ranks, timeout);
  std::vector<Status> statuses(worlds.size());
  const auto run = [&](std::size_t rank) {
    statuses[rank] = StatusOfCall([&] { return body(*worlds[rank]); });
    if (!statuses[rank].ok()) worlds[rank]->Abort(statuses[rank]);
    worlds[rank].reset();  // tells a rank that still waits for this one that it is gone
  };
  {
    std::vector<std::jthread> threads;
    const Status started = StatusOfCall([&] {
      threads.reserve(worlds.size());
      while (threads.size() < worlds.size()) threads.emplace_back(run, threads.size());
      return OkStatus();
    });
    // The others would wait for ranks that have no thread.
    for (std::size_t rank = threads.size(); rank < worlds.size(); ++rank) {
      statuses[rank] = Error(ErrorKind::kSystem, "the system gives a rank no thread")
                           .Expected(std::to_string(worlds.size()) + " threads")
                           .Actual(std::to_string(threads.size()) + ": " + InOneLine(started));
      worlds[rank]->Abort(statuses[rank]);
      worlds[rank].reset();
    }
  }
  const auto is_failure = [](const Status& status) { return !status.ok(); };
  const auto is_cause = [](const Status& status) {
    return !status.ok() && status.kind() != ErrorKind::kCancelled;
  };
  auto first = std::ranges::find_if(statuses, is_cause);
  if (first == statuses.end()) first = std::ranges::find_if(statuses, is_failure);
  return first == statuses.end() ? OkStatus() : std::move(*first);
}

}  // namespace ckpt::trainer
