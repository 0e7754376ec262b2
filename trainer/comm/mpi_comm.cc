#include "trainer/comm/mpi_comm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mpi.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <climits>
#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/thrown.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/internal/host_communicator.h"
#include "trainer/comm/internal/split_members.h"
#include "trainer/comm/reduce_tree.h"

namespace ckpt::trainer {
namespace {

// Of one rank in one MPI call. Large operands go in rounds: that bounds staging memory, and MPI's
// `int` counts.
constexpr std::uint64_t kRoundBytes = std::uint64_t{4} << 20;
// Reductions below this are gathered whole, in one call instead of two.
constexpr std::uint64_t kSmallReduceBytes = 4096;

Status MpiStatus(int code, const char* call) {
  if (code == MPI_SUCCESS) return OkStatus();
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return Error(ErrorKind::kIo, std::string(call) + ": " + text.data());
}

// One element of `size_bytes` whose neighbour in an array lies `stride_bytes` on: piece k of every
// rank's part at once.
class PieceType {
 public:
  PieceType(std::uint64_t size_bytes, std::uint64_t stride_bytes) {
    MPI_Datatype contiguous = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(size_bytes), MPI_BYTE, &contiguous);
    MPI_Type_create_resized(contiguous, 0, static_cast<MPI_Aint>(stride_bytes), &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&contiguous);
  }
  ~PieceType() { MPI_Type_free(&type_); }
  PieceType(const PieceType&) = delete;
  PieceType& operator=(const PieceType&) = delete;

  [[nodiscard]] MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

class MpiCommunicator final : public HostCommunicator {
 public:
  // Takes `comm`.
  explicit MpiCommunicator(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override;
  void Abort(const Status& why) override;

 protected:
  Status GatherNow(const std::byte* mine, std::byte* all, std::uint64_t size_bytes) override;
  Status ReduceScatterNow(DType dtype, std::byte* full, std::byte* shard,
                          std::int64_t count) override {
    return ReduceParts(ReduceOp::kSum, dtype, full, shard, count);
  }
  Status AllReduceNow(ReduceOp op, DType dtype, std::byte* data, std::int64_t count) override;
  Status AllToAllNow(const RowExchange& rows) override;
  Status BarrierNow() override { return MpiStatus(MPI_Barrier(comm_), "MPI_Barrier"); }

 private:
  Status ReduceParts(ReduceOp op, DType dtype, const std::byte* full, std::byte* shard,
                     std::int64_t count);
  Status ReduceSmall(ReduceOp op, DType dtype, std::byte* data, std::int64_t count);
  // Combines what lies in `staging`, one piece of `size_bytes` from each rank.
  void ReduceStaged(ReduceOp op, DType dtype, const std::byte* staging, std::uint64_t size_bytes,
                    std::byte* out) const;

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
};

Status MpiCommunicator::GatherNow(const std::byte* mine, std::byte* all, std::uint64_t size_bytes) {
  const bool is_in_place = mine == all + static_cast<std::uint64_t>(rank_) * size_bytes;
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::uint64_t piece_bytes = std::min(kRoundBytes, size_bytes - done);
    const PieceType piece(piece_bytes, size_bytes);
    const void* send = is_in_place ? MPI_IN_PLACE : mine + done;
    CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Allgather(send, static_cast<int>(piece_bytes), MPI_BYTE,
                                                 all + done, 1, piece.get(), comm_),
                                   "MPI_Allgather"));
    done += piece_bytes;
  }
  return OkStatus();
}

void MpiCommunicator::ReduceStaged(ReduceOp op, DType dtype, const std::byte* staging,
                                   std::uint64_t size_bytes, std::byte* out) const {
  std::vector<const std::byte*> pieces;
  for (int rank = 0; rank < size_; ++rank) {
    pieces.push_back(staging + static_cast<std::uint64_t>(rank) * size_bytes);
  }
  ReduceByTree(op, dtype, pieces, out, static_cast<std::int64_t>(size_bytes / ElementBytes(dtype)));
}

// A round writes its piece of `shard` after it sent that piece of `full`, so they may be the same.
Status MpiCommunicator::ReduceParts(ReduceOp op, DType dtype, const std::byte* full,
                                    std::byte* shard, std::int64_t count) {
  const std::uint64_t part_bytes = static_cast<std::uint64_t>(count) * ElementBytes(dtype);
  const std::uint64_t most = std::min(kRoundBytes, part_bytes);
  const auto staging =
      std::make_unique_for_overwrite<std::byte[]>(most * static_cast<std::uint64_t>(size_));
  for (std::uint64_t done = 0; done < part_bytes;) {
    const std::uint64_t piece_bytes = std::min(most, part_bytes - done);
    const PieceType piece(piece_bytes, part_bytes);
    CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Alltoall(full + done, 1, piece.get(), staging.get(),
                                                static_cast<int>(piece_bytes), MPI_BYTE, comm_),
                                   "MPI_Alltoall"));
    ReduceStaged(op, dtype, staging.get(), piece_bytes, shard + done);
    done += piece_bytes;
  }
  return OkStatus();
}

Status MpiCommunicator::ReduceSmall(ReduceOp op, DType dtype, std::byte* data, std::int64_t count) {
  if (count == 0) return OkStatus();
  const std::uint64_t size_bytes = static_cast<std::uint64_t>(count) * ElementBytes(dtype);
  const auto staging =
      std::make_unique_for_overwrite<std::byte[]>(size_bytes * static_cast<std::uint64_t>(size_));
  CKPT_RETURN_IF_ERROR(GatherNow(data, staging.get(), size_bytes));
  ReduceStaged(op, dtype, staging.get(), size_bytes, data);
  return OkStatus();
}

// Equal parts as reduce-scatter and all-gather, in place; then what does not divide.
Status MpiCommunicator::AllReduceNow(ReduceOp op, DType dtype, std::byte* data,
                                     std::int64_t count) {
  const std::uint64_t element_bytes = ElementBytes(dtype);
  if (static_cast<std::uint64_t>(count) * element_bytes <= kSmallReduceBytes) {
    return ReduceSmall(op, dtype, data, count);
  }
  const std::int64_t part = count / size_;
  const std::uint64_t part_bytes = static_cast<std::uint64_t>(part) * element_bytes;
  std::byte* const own = data + static_cast<std::uint64_t>(rank_) * part_bytes;
  CKPT_RETURN_IF_ERROR(ReduceParts(op, dtype, data, own, part));
  CKPT_RETURN_IF_ERROR(GatherNow(own, data, part_bytes));
  return ReduceSmall(op, dtype, data + static_cast<std::uint64_t>(size_) * part_bytes,
                     count - part * size_);
}

Status MpiCommunicator::AllToAllNow(const RowExchange& rows) {
  if (rows.row_bytes == 0) return OkStatus();
  const auto num_ranks = static_cast<std::size_t>(size_);
  // Counts and where each rank's rows begin, in rows, as MPI takes them.
  const auto to_ints = [&](const std::vector<std::int64_t>& counts, std::vector<int>& ints,
                           std::vector<int>& begins) {
    std::int64_t begin = 0;
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      CKPT_CHECK(begin + counts[rank] <= INT_MAX);
      ints.push_back(static_cast<int>(counts[rank]));
      begins.push_back(static_cast<int>(begin));
      begin += counts[rank];
    }
  };
  std::vector<int> send_counts, send_begins, receive_counts, receive_begins;
  to_ints(rows.send_rows, send_counts, send_begins);
  to_ints(rows.receive_rows, receive_counts, receive_begins);
  CKPT_CHECK(rows.row_bytes <= INT_MAX);
  const PieceType row(rows.row_bytes, rows.row_bytes);
  return MpiStatus(
      MPI_Alltoallv(rows.send, send_counts.data(), send_begins.data(), row.get(), rows.receive,
                    receive_counts.data(), receive_begins.data(), row.get(), comm_),
      "MPI_Alltoallv");
}

Result<std::unique_ptr<Communicator>> MpiCommunicator::Split(int color, int key) {
  // MPI wants no negative colors: the members' first rank serves as well.
  CKPT_ASSIGN_OR_RETURN(const std::vector<int> members, SplitMembers(*this, color, key));
  const int part = *std::ranges::min_element(members);
  MPI_Comm comm = MPI_COMM_NULL;
  CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Comm_split(comm_, part, key, &comm), "MPI_Comm_split"));
  return std::unique_ptr<Communicator>(std::make_unique<MpiCommunicator>(comm));
}

// The one place of the trainer that prints: MPI ends this process too, so nobody else can say why.
void MpiCommunicator::Abort(const Status& why) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d gave up: %s\n", rank, why.ToString().c_str());
  std::fflush(stderr);
  constexpr int kFailed = 3;  // as the tools exit
  MPI_Abort(MPI_COMM_WORLD, kFailed);
}

// Which of the ranks that failed speaks: MPI ends all processes when one does, so it speaks for all of them.
//
// Ranks that fail alike meet here, and the first whose error is not that of another rank speaks. Where one fails alone the
// others are held in a call that waits for it, and it speaks when they had the time to come.
class SpeakerVote {
 public:
  // While all ranks are well. Takes `comm`.
  explicit SpeakerVote(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    int size = 0;
    MPI_Comm_size(comm_, &size);
    are_causes_.resize(static_cast<std::size_t>(size));
  }
  ~SpeakerVote() { MPI_Comm_free(&comm_); }
  SpeakerVote(const SpeakerVote&) = delete;
  SpeakerVote& operator=(const SpeakerVote&) = delete;

  // Returns when this rank is to speak; usually another one has ended the process by then. Once, by a rank that failed.
  void AwaitTurn(ErrorKind failure);

 private:
  // Whether all ranks came before `deadline`.
  bool HaveAllCome(std::chrono::steady_clock::time_point deadline);

  MPI_Comm comm_;
  int rank_ = 0;
  unsigned char is_cause_ = 0;
  std::vector<unsigned char> are_causes_;
};

bool SpeakerVote::HaveAllCome(std::chrono::steady_clock::time_point deadline) {
  const int count = 1;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallgather(&is_cause_, count, MPI_BYTE, are_causes_.data(), count, MPI_BYTE, comm_,
                     &request) != MPI_SUCCESS) {
    return false;
  }
  int have_come = 0;
  while (have_come == 0 && std::chrono::steady_clock::now() < deadline) {
    if (MPI_Test(&request, &have_come, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return have_come != 0;
}

void SpeakerVote::AwaitTurn(ErrorKind failure) {
  using std::chrono::milliseconds;
  constexpr milliseconds kOthersCome(500);  // where all fail alike
  constexpr milliseconds kBetweenTurns(100);
  constexpr milliseconds kCauseSpeaks(
      5000);  // a rank that failed because another did should not be first
  is_cause_ = failure == ErrorKind::kCancelled ? 0 : 1;
  const milliseconds patience = is_cause_ == 0 ? kCauseSpeaks : kOthersCome + rank_ * kBetweenTurns;
  if (!HaveAllCome(std::chrono::steady_clock::now() + patience)) return;
  const auto first = std::ranges::find(are_causes_, 1);
  const auto speaker = first == are_causes_.end() ? 0 : first - are_causes_.begin();
  if (speaker != rank_) std::this_thread::sleep_for(kCauseSpeaks);
}

bool NotEmpty(const std::string& text) { return !text.empty(); }

// MPI from its start to its end; `status` says whether it started.
class MpiSession {
 public:
  static Result<std::unique_ptr<MpiSession>> Start(QueueMode queues) {
    int has_started = 0;
    MPI_Initialized(&has_started);
    if (has_started != 0) return Error(ErrorKind::kUsage, "MPI starts once in a process");
    const int needed = queues == QueueMode::kThreads ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
    int provided = MPI_THREAD_SINGLE;
    CKPT_RETURN_IF_ERROR(
        MpiStatus(MPI_Init_thread(nullptr, nullptr, needed, &provided), "MPI_Init_thread"));
    std::unique_ptr<MpiSession> session(new MpiSession());
    if (provided < needed) {
      return Error(ErrorKind::kUnsupported, "this MPI does not support calls from several threads")
          .Hint("use inline queues, or an MPI with MPI_THREAD_MULTIPLE");
    }
    return session;
  }
  ~MpiSession() { MPI_Finalize(); }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

 private:
  MpiSession() = default;
};

}  // namespace

Status FailTogether(const Status& failure, const std::function<void()>& speak) {
  CKPT_CHECK(!failure.ok());
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session,
                        MpiSession::Start(QueueMode::kInline));
  MPI_Comm comm = MPI_COMM_NULL;
  CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup"));
  MpiCommunicator world(comm);
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> failures,
                        ExchangeTexts(world, InOneLine(failure)));
  if (std::ranges::find_if(failures, &NotEmpty) - failures.begin() == world.rank()) speak();
  return world.Barrier();
}

Status RunMpiRank(QueueMode queues, const std::function<Status(Communicator& world)>& body) {
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session, MpiSession::Start(queues));
  MPI_Comm comm = MPI_COMM_NULL;
  CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup"));
  MpiCommunicator world(comm);
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> failures, ExchangeTexts(world, ""));
  const auto failed = std::ranges::find_if(failures, &NotEmpty);
  if (failed != failures.end()) {
    CKPT_RETURN_IF_ERROR(world.Barrier());  // FailTogether's
    return Error(ErrorKind::kCancelled,
                 fmt::format("rank {} failed before it ran", failed - failures.begin()))
        .Actual(*failed);
  }
  MPI_Comm vote_comm = MPI_COMM_NULL;
  CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &vote_comm), "MPI_Comm_dup"));
  SpeakerVote vote(vote_comm);
  // An exception must not unwind to MPI_Finalize, where it would wait for ranks that wait for it.
  Status status = StatusOfCall([&] { return body(world); });
  if (!status.ok()) {
    vote.AwaitTurn(status.kind());
    world.Abort(status);
  }
  return status;
}

}  // namespace ckpt::trainer
