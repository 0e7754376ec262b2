#include "trainer/comm/mpi_comm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mpi.h>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <climits>
#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/thrown.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/internal/failed_exit_code.h"
#include "trainer/comm/internal/roll_call.h"
#include "trainer/comm/internal/split_members.h"
#include "trainer/comm/launcher.h"
#include "trainer/comm/periodic_thread.h"

namespace ckpt::trainer {
namespace {

// Bytes of one rank in one MPI call. Larger operands take several rounds. That bounds the staging
// memory and keeps counts within MPI's `int`.
constexpr std::uint64_t kRoundBytes = std::uint64_t{4} << 20;

Status MpiStatus(int code, const char* call) {
  if (code == MPI_SUCCESS) return OkStatus();
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return Error(ErrorKind::kIo, std::string(call) + ": " + text.data());
}

// An array's element of `size_bytes`, with `stride_bytes` from one element to the next: it
// describes piece k of every rank's part at once.
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

class MpiHostGroup final : public HostGroup {
 public:
  // Takes ownership of `comm`. `roll_call`: asked where the members are; null: nobody waits for an
  // answer. It outlives the group. `id` and `members` are those of the group's track.
  MpiHostGroup(MPI_Comm comm, RollCall* roll_call, std::string id, std::vector<int> members)
      : comm_(comm),
        roll_call_(roll_call),
        track_(std::make_shared<CallTrack>(std::move(id), std::move(members))) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    if (roll_call_ != nullptr) roll_call_->Watch(track_);
  }
  ~MpiHostGroup() override { MPI_Comm_free(&comm_); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  Status Exchange(ByteSpan mine, MutableByteSpan all) override;
  Status ExchangeParts(ByteSpan full, const UseParts& use) override;
  Status ExchangeRows(const RowExchange& rows) override;
  Status Barrier() override {
    const TrackedCall call(*track_, "a barrier", 0);
    return MpiStatus(MPI_Barrier(comm_), "MPI_Barrier");
  }
  Result<std::shared_ptr<RankShared>> Share(std::shared_ptr<RankShared> /*mine*/) override {
    return Error(ErrorKind::kUnsupported, "ranks that are processes share no memory")
        .Hint("start one process, whose threads are the ranks");
  }
  Result<std::unique_ptr<HostGroup>> Split(int color, int key) override;
  Result<std::unique_ptr<HostGroup>> Separate() override;
  void Abort(const Status& why) override;
  [[nodiscard]] bool abort_ends_processes() const override { return true; }
  std::shared_ptr<CallTrack> MakeTrack(std::string_view kind) override;

 private:
  MPI_Comm comm_;
  RollCall* const roll_call_;
  const std::shared_ptr<CallTrack> track_;
  int rank_ = 0;
  int size_ = 0;
};

Status MpiHostGroup::Exchange(ByteSpan mine, MutableByteSpan all) {
  const std::uint64_t size_bytes = mine.size();
  CKPT_CHECK(all.size() == size_bytes * static_cast<std::uint64_t>(size_));
  const bool is_in_place =
      mine.data() == all.data() + static_cast<std::uint64_t>(rank_) * size_bytes;
  const TrackedCall call(*track_, "an exchange", all.size());
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::uint64_t piece_bytes = std::min(kRoundBytes, size_bytes - done);
    const PieceType piece(piece_bytes, size_bytes);
    const void* send = is_in_place ? MPI_IN_PLACE : mine.data() + done;
    CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Allgather(send, static_cast<int>(piece_bytes), MPI_BYTE,
                                                 all.data() + done, 1, piece.get(), comm_),
                                   "MPI_Allgather"));
    done += piece_bytes;
  }
  return OkStatus();
}

// Each round sends a piece of `full` before `use` may write the same piece of this rank's part.
Status MpiHostGroup::ExchangeParts(ByteSpan full, const UseParts& use) {
  const auto num_ranks = static_cast<std::uint64_t>(size_);
  const std::uint64_t part_bytes = full.size() / num_ranks;
  CKPT_CHECK(part_bytes * num_ranks == full.size());
  const TrackedCall call(*track_, "an exchange of parts", full.size());
  const std::uint64_t most = std::min(kRoundBytes, part_bytes);
  const auto staging = std::make_unique_for_overwrite<std::byte[]>(most * num_ranks);
  std::vector<const std::byte*> parts(num_ranks);
  for (std::uint64_t done = 0; done < part_bytes;) {
    const std::uint64_t piece_bytes = std::min(most, part_bytes - done);
    const PieceType piece(piece_bytes, part_bytes);
    CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Alltoall(full.data() + done, 1, piece.get(), staging.get(),
                                                static_cast<int>(piece_bytes), MPI_BYTE, comm_),
                                   "MPI_Alltoall"));
    for (std::uint64_t r = 0; r < num_ranks; ++r) parts[r] = staging.get() + r * piece_bytes;
    use(parts, done, piece_bytes);
    done += piece_bytes;
  }
  return OkStatus();
}

Status MpiHostGroup::ExchangeRows(const RowExchange& rows) {
  if (rows.row_bytes == 0) return OkStatus();
  const auto num_ranks = static_cast<std::size_t>(size_);
  // Counts of rows, and where each rank's rows begin, as MPI's `int`.
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
  const TrackedCall call(*track_, "an exchange of rows", 0);
  return MpiStatus(
      MPI_Alltoallv(rows.send, send_counts.data(), send_begins.data(), row.get(), rows.receive,
                    receive_counts.data(), receive_begins.data(), row.get(), comm_),
      "MPI_Alltoallv");
}

Result<std::unique_ptr<HostGroup>> MpiHostGroup::Split(int color, int key) {
  // MPI takes no negative colors, so the members' first rank is the color.
  CKPT_ASSIGN_OR_RETURN(const std::vector<int> members, SplitMembers(*this, color, key));
  const int part = *std::ranges::min_element(members);
  std::vector<int> in_world;
  for (const int member : members) {
    in_world.push_back(track_->members()[static_cast<std::size_t>(member)]);
  }
  const TrackedCall call(*track_, "a split", 0);
  MPI_Comm comm = MPI_COMM_NULL;
  CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Comm_split(comm_, part, key, &comm), "MPI_Comm_split"));
  std::string id = fmt::format("{}/{}.{}", track_->id(), track_->num_begun(), part);
  return std::unique_ptr<HostGroup>(
      std::make_unique<MpiHostGroup>(comm, roll_call_, std::move(id), std::move(in_world)));
}

Result<std::unique_ptr<HostGroup>> MpiHostGroup::Separate() {
  const TrackedCall call(*track_, "a separation", 0);
  MPI_Comm comm = MPI_COMM_NULL;
  CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Comm_dup(comm_, &comm), "MPI_Comm_dup"));
  std::string id = fmt::format("{}/{}", track_->id(), track_->num_begun());
  return std::unique_ptr<HostGroup>(
      std::make_unique<MpiHostGroup>(comm, roll_call_, std::move(id), track_->members()));
}

std::shared_ptr<CallTrack> MpiHostGroup::MakeTrack(std::string_view kind) {
  auto track =
      std::make_shared<CallTrack>(fmt::format("{}/{}", track_->id(), kind), track_->members());
  if (roll_call_ != nullptr) roll_call_->Watch(track);
  return track;
}

// It prints, since MPI ends this process too: no caller could report the reason.
void MpiHostGroup::Abort(const Status& why) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d gave up: %s\n", rank, InOneLine(why).c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, kFailedExitCode);
}

// Decides which of the ranks that failed prints its error. That rank then ends all processes, so it
// speaks for all of them.
//
// Ranks that fail alike meet here. The first whose error was not caused by another rank speaks. If
// only one rank fails, the others wait for it in a call; it speaks after the time in which they
// could have come here.
class SpeakerVote {
 public:
  // Made while all ranks work normally. Takes ownership of `comm`.
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

  // Returns when it is this rank's turn to speak; usually another rank has ended the process by
  // then. A rank that failed calls it once.
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
  constexpr milliseconds kOthersCome(500);  // the time for all to come if they fail alike
  constexpr milliseconds kBetweenTurns(100);
  constexpr milliseconds kLastTurn(2000);  // however many ranks there are
  // A rank that failed because of another one should not speak first.
  constexpr milliseconds kCauseSpeaks(5000);
  is_cause_ = failure == ErrorKind::kCancelled ? 0 : 1;
  const milliseconds turn =
      std::min(rank_ * kBetweenTurns, rank_ * kLastTurn / static_cast<int>(are_causes_.size()));
  const milliseconds patience = is_cause_ == 0 ? kCauseSpeaks : kOthersCome + turn;
  if (!HaveAllCome(std::chrono::steady_clock::now() + patience)) return;
  const auto first = std::ranges::find(are_causes_, 1);
  const auto speaker = first == are_causes_.end() ? 0 : first - are_causes_.begin();
  if (speaker != rank_) std::this_thread::sleep_for(kCauseSpeaks);
}

// Letters by MPI's eager messages. One thread uses it.
class MpiMailbox final : public Mailbox {
 public:
  // Takes ownership of `comm`, on which nothing else is sent.
  explicit MpiMailbox(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiMailbox() override { MPI_Comm_free(&comm_); }
  MpiMailbox(const MpiMailbox&) = delete;
  MpiMailbox& operator=(const MpiMailbox&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void Send(int to, std::string_view text) override {
    // MPI reads the text until the letter is on its way.
    const auto letter = std::make_shared<std::string>(text);
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(letter->data(), static_cast<int>(letter->size()), MPI_BYTE, to, kTag, comm_,
                  &request) == MPI_SUCCESS) {
      under_way_.emplace_back(request, letter);
    }
  }

  std::optional<Letter> Take() override {
    std::erase_if(under_way_, [](auto& sent) {
      int is_done = 0;
      return MPI_Test(&sent.first, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS || is_done != 0;
    });
    int has_come = 0;
    int size = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &has_come, &status) != MPI_SUCCESS ||
        has_come == 0 || MPI_Get_count(&status, MPI_BYTE, &size) != MPI_SUCCESS) {
      return std::nullopt;
    }
    Letter letter = {.from = status.MPI_SOURCE,
                     .text = std::string(static_cast<std::size_t>(size), '\0')};
    if (MPI_Recv(letter.text.data(), size, MPI_BYTE, letter.from, kTag, comm_, MPI_STATUS_IGNORE) !=
        MPI_SUCCESS) {
      return std::nullopt;
    }
    return letter;
  }

 private:
  static constexpr int kTag = 1;

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
  std::vector<std::pair<MPI_Request, std::shared_ptr<std::string>>> under_way_;
};

// How often to look at a roll call: several times in `timeout`, and in the time to answer.
std::chrono::milliseconds LookPeriod(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kShortest{1};
  constexpr std::chrono::milliseconds kLongest{100};
  return std::clamp(timeout / 10, kShortest, kLongest);
}

Result<MPI_Comm> DuplicateWorld() {
  MPI_Comm comm = MPI_COMM_NULL;
  CKPT_RETURN_IF_ERROR(MpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup"));
  return comm;
}

// A group of all processes.
Result<std::unique_ptr<MpiHostGroup>> MakeMpiWorld(std::string id, RollCall* roll_call) {
  CKPT_ASSIGN_OR_RETURN(MPI_Comm const comm, DuplicateWorld());
  int size = 0;
  MPI_Comm_size(comm, &size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<MpiHostGroup>(comm, roll_call, std::move(id), std::move(ranks));
}

bool NotEmpty(const std::string& text) { return !text.empty(); }

// Starts MPI and ends it.
class MpiSession {
 public:
  // The one that was kept, or a new one.
  static Result<std::unique_ptr<MpiSession>> TakeOrStart() {
    if (Kept()) return std::move(Kept());
    return Start();
  }
  // For the next TakeOrStart.
  static void Keep(std::unique_ptr<MpiSession> session) { Kept() = std::move(session); }

  // Errors: kUnsupported (several threads must not call MPI).
  [[nodiscard]] Status CheckServesThreads() const {
    if (provided_ == MPI_THREAD_MULTIPLE) return OkStatus();
    return Error(ErrorKind::kUnsupported, "this MPI does not support calls from several threads")
        .Hint("use an MPI with MPI_THREAD_MULTIPLE, or inline queues and no time-out");
  }

  ~MpiSession() { MPI_Finalize(); }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

 private:
  MpiSession() = default;

  // Never destroyed: a process that ends without its rank must not wait in MPI_Finalize for others.
  static std::unique_ptr<MpiSession>& Kept() {
    static auto& kept = *new std::unique_ptr<MpiSession>();
    return kept;
  }

  static Result<std::unique_ptr<MpiSession>> Start() {
    CKPT_RETURN_IF_ERROR(CheckCanMeet());
    const int launched = NumLaunchedProcesses();
    int has_started = 0;
    MPI_Initialized(&has_started);
    if (has_started != 0) return Error(ErrorKind::kUsage, "MPI can start only once in a process");
    // Whether several threads will call it is one of the settings, which may not be known yet.
    int provided = MPI_THREAD_SINGLE;
    CKPT_RETURN_IF_ERROR(MpiStatus(
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread"));
    std::unique_ptr<MpiSession> session(new MpiSession());
    session->provided_ = provided;
    int joined = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &joined);
    if (joined != launched) {
      return Error(ErrorKind::kUnsupported,
                   "the launcher started processes that MPI did not bring together")
          .Expected(fmt::format("a world of {} processes", launched))
          .Actual(fmt::format("a world of {}", joined))
          .Hint(
              "start them with the mpirun of the MPI that this program was built with, or with "
              "srun --mpi=pmix");
    }
    return session;
  }

  int provided_ = MPI_THREAD_SINGLE;
};

// A group of all processes, none of which has failed. Errors: kCancelled (one has called
// FailTogether).
Result<std::unique_ptr<MpiHostGroup>> Meet() {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<MpiHostGroup> meeting, MakeMpiWorld("meeting", nullptr));
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> failures, ExchangeTexts(*meeting, ""));
  const auto failed = std::ranges::find_if(failures, &NotEmpty);
  if (failed == failures.end()) return meeting;
  CKPT_RETURN_IF_ERROR(meeting->Barrier());  // matches the one in FailTogether
  return Error(ErrorKind::kCancelled,
               fmt::format("rank {} failed before it ran", failed - failures.begin()))
      .Actual(*failed);
}

}  // namespace

Status FailTogether(const Status& failure, const std::function<void()>& speak) {
  CKPT_CHECK(!failure.ok());
  if (!CheckCanMeet().ok()) {  // so no process runs
    if (IsFirstTask()) speak();
    return OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session, MpiSession::TakeOrStart());
  CKPT_ASSIGN_OR_RETURN(const auto meeting, MakeMpiWorld("meeting", nullptr));
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> failures,
                        ExchangeTexts(*meeting, InOneLine(failure)));
  if (std::ranges::find_if(failures, &NotEmpty) - failures.begin() == meeting->rank()) speak();
  return meeting->Barrier();
}

Status MeetEarly(const std::function<Status(HostGroup& meeting)>& body) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<MpiSession> session, MpiSession::TakeOrStart());
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<MpiHostGroup> meeting, Meet());
  MpiSession::Keep(std::move(session));
  return body(*meeting);
}

Status RunMpiRank(const MpiOptions& options, const std::function<Status(HostGroup& world)>& body) {
  const bool has_timeout = options.timeout.count() > 0;
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session, MpiSession::TakeOrStart());
  CKPT_RETURN_IF_ERROR(Meet().status());
  if (options.from_threads || has_timeout) CKPT_RETURN_IF_ERROR(session->CheckServesThreads());
  CKPT_ASSIGN_OR_RETURN(MPI_Comm const vote_comm, DuplicateWorld());
  SpeakerVote vote(vote_comm);
  std::optional<RollCall> roll_call;
  if (has_timeout) {
    CKPT_ASSIGN_OR_RETURN(MPI_Comm const letters, DuplicateWorld());
    roll_call.emplace(RollCall::Options{.timeout = options.timeout},
                      std::make_unique<MpiMailbox>(letters));
  }
  CKPT_ASSIGN_OR_RETURN(const auto world, MakeMpiWorld("world", roll_call ? &*roll_call : nullptr));
  std::optional<PeriodicThread> looks;
  if (roll_call) {
    looks.emplace(LookPeriod(options.timeout), [&roll_call, &world] {
      const Status status = roll_call->Look(RollCall::Clock::now());
      if (!status.ok()) world->Abort(status);  // ends the process
    });
  }
  // An exception must not unwind to MPI_Finalize: this rank would wait there for ranks that wait
  // for it.
  Status status = StatusOfCall([&] { return body(*world); });
  // MPI_Finalize waits for all ranks too, and is not watched.
  if (status.ok()) status = world->Barrier();
  if (!status.ok()) {
    vote.AwaitTurn(status.kind());
    world->Abort(status);
  }
  return status;
}

}  // namespace ckpt::trainer
