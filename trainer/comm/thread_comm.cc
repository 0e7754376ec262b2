#include "trainer/comm/thread_comm.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/thrown.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/internal/split_members.h"
#include "trainer/comm/internal/thread_group.h"
#include "trainer/comm/reduce_tree.h"

namespace ckpt::trainer {
namespace {

// All groups of one world, so that giving up reaches each of them.
class ThreadWorld {
 public:
  explicit ThreadWorld(int num_ranks)
      : should_spin_(std::thread::hardware_concurrency() >= static_cast<unsigned>(num_ranks)) {}

  std::shared_ptr<ThreadGroup> MakeGroup(int size) CKPT_EXCLUDES(mutex_) {
    auto group = std::make_shared<ThreadGroup>(size, should_spin_);
    const MutexLock lock(mutex_);
    std::erase_if(groups_, [](const auto& known) { return known.expired(); });
    groups_.push_back(group);
    if (!cancelled_.ok()) group->Cancel(cancelled_);
    return group;
  }

  void Abort(const Status& why) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!cancelled_.ok()) return;
    cancelled_ = Error(ErrorKind::kCancelled, "a rank gave up: " + InOneLine(why));
    for (const std::weak_ptr<ThreadGroup>& known : groups_) {
      if (const auto group = known.lock()) group->Cancel(cancelled_);
    }
  }

 private:
  const bool should_spin_;
  Mutex mutex_;  // locked before a group's mutex
  std::vector<std::weak_ptr<ThreadGroup>> groups_ CKPT_GUARDED_BY(mutex_);
  Status cancelled_ CKPT_GUARDED_BY(mutex_);
};

void CopyBytes(const std::byte* from, std::byte* to, std::uint64_t size_bytes) {
  if (from != to && size_bytes != 0) std::memcpy(to, from, size_bytes);
}

class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadWorld> world, std::shared_ptr<ThreadGroup> group,
                     int rank)
      : world_(std::move(world)), group_(std::move(group)), rank_(rank) {}
  // The rank leaves its group: every later meeting of the group fails.
  ~ThreadCommunicator() override {
    group_->Cancel(Error(ErrorKind::kCancelled, "rank " + std::to_string(rank_) + " is gone"));
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override;
  void Abort(const Status& why) override { world_->Abort(why); }

 protected:
  Status GatherNow(const std::byte* mine, std::byte* all, std::uint64_t size_bytes) override;
  Status ReduceScatterNow(DType dtype, std::byte* full, std::byte* shard,
                          std::int64_t count) override;
  Status AllReduceNow(ReduceOp op, DType dtype, std::byte* data, std::int64_t count) override;
  Status AllToAllNow(const RowExchange& rows) override;
  Status BarrierNow() override {
    CKPT_RETURN_IF_ERROR(group_->Meet(rank_, {.call = "Barrier"}));
    group_->Part();
    return OkStatus();
  }

 private:
  // The operands that the ranks showed, from `offset_bytes` on.
  std::vector<const std::byte*> ShownData(std::uint64_t offset_bytes) const {
    std::vector<const std::byte*> data;
    for (int peer = 0; peer < size(); ++peer) {
      data.push_back(group_->shown(peer).data + offset_bytes);
    }
    return data;
  }
  // The other ranks, beginning with the next one, so that the ranks do not all read the same memory
  // at once.
  int Peer(int i) const { return (rank_ + i) % size(); }

  const std::shared_ptr<ThreadWorld> world_;
  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
};

Status ThreadCommunicator::GatherNow(const std::byte* mine, std::byte* all,
                                     std::uint64_t size_bytes) {
  CKPT_RETURN_IF_ERROR(
      group_->Meet(rank_, {.call = "AllGather", .size_bytes = size_bytes, .data = mine}));
  for (int i = 0; i < size(); ++i) {
    const int peer = Peer(i);
    CopyBytes(group_->shown(peer).data, all + static_cast<std::uint64_t>(peer) * size_bytes,
              size_bytes);
  }
  group_->Part();
  return OkStatus();
}

// A rank writes only its own part of its own `full`, which no other rank reads. So `shard` may lie
// in `full`.
Status ThreadCommunicator::ReduceScatterNow(DType dtype, std::byte* full, std::byte* shard,
                                            std::int64_t count) {
  const std::uint64_t part_bytes = static_cast<std::uint64_t>(count) * ElementBytes(dtype);
  CKPT_RETURN_IF_ERROR(group_->Meet(
      rank_, {.call = "ReduceScatter", .dtype = dtype, .size_bytes = part_bytes, .data = full}));
  ReduceByTree(ReduceOp::kSum, dtype, ShownData(static_cast<std::uint64_t>(rank_) * part_bytes),
               shard, count);
  group_->Part();
  return OkStatus();
}

// Every rank reduces one slice in place, then copies the slices of the others.
Status ThreadCommunicator::AllReduceNow(ReduceOp op, DType dtype, std::byte* data,
                                        std::int64_t count) {
  constexpr std::int64_t kSliceUnit = 64;  // elements, so that slices share no cache line
  const std::uint64_t element_bytes = ElementBytes(dtype);
  const std::int64_t units = (count + kSliceUnit - 1) / kSliceUnit;
  const std::int64_t slice = (units + size() - 1) / size() * kSliceUnit;
  const auto begin_of = [&](int rank) { return std::min(rank * slice, count); };
  const auto offset_of = [&](int rank) {
    return static_cast<std::uint64_t>(begin_of(rank)) * element_bytes;
  };
  CKPT_RETURN_IF_ERROR(
      group_->Meet(rank_, {.call = op == ReduceOp::kSum ? "AllReduce" : "AllReduce max",
                           .dtype = dtype,
                           .size_bytes = offset_of(size()),
                           .data = data}));
  const std::uint64_t own = offset_of(rank_);
  ReduceByTree(op, dtype, ShownData(own), data + own, begin_of(rank_ + 1) - begin_of(rank_));
  group_->Sync();
  for (int i = 1; i < size(); ++i) {
    const std::uint64_t offset = offset_of(Peer(i));
    CopyBytes(group_->shown(Peer(i)).data + offset, data + offset, offset_of(Peer(i) + 1) - offset);
  }
  group_->Part();
  return OkStatus();
}

Status ThreadCommunicator::AllToAllNow(const RowExchange& rows) {
  CKPT_RETURN_IF_ERROR(
      group_->Meet(rank_, {.call = "AllToAll", .size_bytes = rows.row_bytes, .rows = &rows}));
  Status status;
  std::byte* to = rows.receive;
  for (int peer = 0; peer < size(); ++peer) {
    const RowExchange& theirs = *group_->shown(peer).rows;
    const std::int64_t num_rows = theirs.send_rows[static_cast<std::size_t>(rank_)];
    const std::int64_t expected = rows.receive_rows[static_cast<std::size_t>(peer)];
    if (num_rows != expected) {
      status =
          Error(ErrorKind::kInternal, "a rank sends a different number of rows than is received")
              .Expected(std::to_string(expected) + " rows from rank " + std::to_string(peer))
              .Actual(std::to_string(num_rows));
      break;
    }
    std::int64_t rows_before = 0;
    for (int i = 0; i < rank_; ++i) rows_before += theirs.send_rows[static_cast<std::size_t>(i)];
    const std::uint64_t size_bytes = static_cast<std::uint64_t>(num_rows) * rows.row_bytes;
    CopyBytes(theirs.send + static_cast<std::uint64_t>(rows_before) * rows.row_bytes, to,
              size_bytes);
    to += size_bytes;
  }
  group_->Part();
  return status;
}

Result<std::unique_ptr<Communicator>> ThreadCommunicator::Split(int color, int key) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<int> members, SplitMembers(*this, color, key));
  const auto own = std::ranges::find(members, rank_) - members.begin();
  // The first member makes the group. The others take it before the ranks part.
  std::shared_ptr<ThreadGroup> group;
  if (own == 0) group = world_->MakeGroup(static_cast<int>(members.size()));
  CKPT_RETURN_IF_ERROR(group_->Meet(rank_, {.call = "Split", .made = &group}));
  const std::shared_ptr<ThreadGroup> made = *group_->shown(members.front()).made;
  group_->Part();
  return std::unique_ptr<Communicator>(
      std::make_unique<ThreadCommunicator>(world_, made, static_cast<int>(own)));
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeThreadWorld(int num_ranks) {
  CKPT_CHECK(num_ranks > 0);
  auto world = std::make_shared<ThreadWorld>(num_ranks);
  const std::shared_ptr<ThreadGroup> group = world->MakeGroup(num_ranks);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.push_back(std::make_unique<ThreadCommunicator>(world, group, rank));
  }
  return ranks;
}

Status RunRanks(int num_ranks, const std::function<Status(Communicator& world)>& body) {
  std::vector<std::unique_ptr<Communicator>> worlds = MakeThreadWorld(num_ranks);
  std::vector<Status> statuses(worlds.size());
  const auto run = [&](std::size_t rank) {
    statuses[rank] = StatusOfCall([&] { return body(*worlds[rank]); });
    if (!statuses[rank].ok()) worlds[rank]->Abort(statuses[rank]);
    worlds[rank].reset();  // tells a rank that still waits for this one that it is gone
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < worlds.size(); ++rank) threads.emplace_back(run, rank);
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
