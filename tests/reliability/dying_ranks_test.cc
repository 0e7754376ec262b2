// Any of four ranks die at any point of a save: nobody hangs, and the last complete checkpoint
// loads.
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/check.h"
#include "tests/reliability/crash_storage.h"
#include "tests/reliability/suite.h"
#include "tests/reliability/watched_rank.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/checkpoint/state_pattern.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::testing {
namespace {

using train::RankSession;
using train::RunProgress;
using trainer::HostGroup;
using Kind = RankCall::Kind;

constexpr int kRanks = 4;
constexpr std::string_view kNewest = "iter_0000002";
const Path kRoot = "/runs/a";

// The points of a save, in order. Those of the commit are rank 0's: the others wait for it then.
enum class Phase : std::uint8_t {
  kBeforeStaging,
  kAfterStaging,
  kDigest,
  kPlanning,
  kBeforeOpen,
  kAfterOpen,
  kWriting,
  kWritten,
  kAccounts,
  kBeforeManifest,
  kBeforeRename,
  kAfterRename,
};
constexpr std::array kPhaseNames = {"before staging",  "after staging",     "exchange of digests",
                                    "planning",        "before open",       "after open",
                                    "during writing",  "own files durable", "accounts",
                                    "before manifest", "before rename",     "after rename"};
constexpr int kNumPhases = static_cast<int>(kPhaseNames.size());

// The exchanges of a save that waits for itself, by number.
constexpr int kExchangeOfStaging = 1;  // whether all have staged
// Behind whether all are ready, have hashed, and know the next loss.
constexpr int kExchangeOfDigests = 5;
// Whether rank 0 has opened, behind whether all are ready and have planned.
constexpr int kExchangeOfOpening = 8;
constexpr int kExchangeOfWriting = 11;   // whether all have written, behind where to: size and text
constexpr int kExchangeOfAccounts = 14;  // behind the outcomes and the sizes of accounts
constexpr int kExchangeOfCommit = 15;    // whether rank 0 has committed

// Whether a rank that is to die in `phase` dies at this call.
bool IsPoint(Phase phase, const RankCall& call, int rank) {
  const auto enters = [&](int exchange) {
    return call.kind == Kind::kExchange && !call.is_over && call.number == exchange;
  };
  const auto leaves = [&](int exchange) {
    return call.kind == Kind::kExchange && call.is_over && call.number == exchange;
  };
  const bool commits = rank == 0;
  switch (phase) {
    case Phase::kBeforeStaging:
      return false;  // the test does it
    case Phase::kAfterStaging:
      return enters(kExchangeOfStaging);
    case Phase::kDigest:
      return enters(kExchangeOfDigests);
    case Phase::kPlanning:
      return leaves(kExchangeOfDigests);
    case Phase::kBeforeOpen:
      return commits ? call.kind == Kind::kLock && !call.is_over : enters(kExchangeOfOpening);
    case Phase::kAfterOpen:
      return leaves(kExchangeOfOpening);
    case Phase::kWriting:
      return call.kind == Kind::kWrite && call.is_over && call.number == 1;  // of several
    case Phase::kWritten:
      return enters(kExchangeOfWriting);
    case Phase::kAccounts:
      return enters(kExchangeOfAccounts);
    case Phase::kBeforeManifest:
      if (!commits) return enters(kExchangeOfCommit);
      return call.kind == Kind::kCreate && !call.is_over && call.file == "ckptkit.json";
    case Phase::kBeforeRename:
      if (!commits) return enters(kExchangeOfCommit);
      return call.kind == Kind::kRename && !call.is_over && call.file == kNewest;
    case Phase::kAfterRename:
      if (!commits) return enters(kExchangeOfCommit);
      return call.kind == Kind::kRename && call.is_over && call.file == kNewest;
  }
  CKPT_CHECK(false);
  return false;
}

// What came of a save in which some ranks died.
struct Outcome {
  std::vector<Status> ranks;  // of the save
  std::vector<bool> died;
};

class DyingRanksTest : public ::testing::Test {
 protected:
  // Large enough that every rank has rows to write.
  static layout::Configuration Settings() {
    return With(
        TinySettings(),
        {{"hidden_size", 16}, {"kv_channels", 8}, {"vocab_size", 64}, {"save", kRoot.string()}});
  }

  // A disk with iteration 1, which is state 1.
  static DiskImage MakeDisk() {
    CrashStorage disk;
    auto sessions = SmallSessions::Create(disk, Settings(), 1);
    EXPECT_THAT(sessions.status(), IsOk());
    EXPECT_THAT(
        sessions->Run([](RankSession& session, HostGroup&) { return SaveState(session, 1, 1); }),
        IsOk());
    return disk.image();
  }

  // Ranks of `victims` die in `phase` of saving state 2 as iteration 2.
  static Outcome Save(Storage& storage, unsigned victims, Phase phase) {
    auto sessions = SmallSessions::Create(storage, Settings(), kRanks);
    CKPT_CHECK(sessions.ok());
    Outcome outcome = {.ranks = std::vector<Status>(kRanks), .died = {}};
    std::vector<std::unique_ptr<WatchedRank>> ranks(kRanks);
    std::latch all_are_there(std::popcount(victims));
    sessions->storage_of = [&](int rank) -> Storage& {
      return ranks[static_cast<std::size_t>(rank)]->storage();
    };
    const Status ignored = trainer::RunRanks(kRanks, [&](HostGroup& world) {
      const int rank = world.rank();
      const bool is_victim = (victims >> rank & 1) != 0;
      auto& watched = ranks[static_cast<std::size_t>(rank)];
      watched =
          std::make_unique<WatchedRank>(storage, world, [&, rank, is_victim](const RankCall& call) {
            if (!is_victim || !IsPoint(phase, call, rank)) return false;
            all_are_there.arrive_and_wait();
            return true;
          });
      const auto body = [&](RankSession& session, HostGroup&) -> Status {
        CKPT_RETURN_IF_ERROR(SetState(session.trainer(), 2));
        CKPT_RETURN_IF_ERROR(world.Barrier());
        watched->Watch();
        if (is_victim && phase == Phase::kBeforeStaging) {
          all_are_there.arrive_and_wait();
          watched->Die();
        }
        return session.checkpoints().Save({.iteration = 2, .consumed_samples = 2, .next_loss = {}});
      };
      Status& status = outcome.ranks[static_cast<std::size_t>(rank)];
      status = sessions->RunAsRank(watched->world(), body);
      return status;
    });
    for (const auto& rank : ranks) outcome.died.push_back(rank->is_dead());
    return outcome;
  }

  // The iteration that a run goes on from, whose state is whole.
  static Result<std::int64_t> GoOn(Storage& storage) {
    CKPT_ASSIGN_OR_RETURN(
        SmallSessions sessions,
        SmallSessions::Create(storage, With(Settings(), {{"load", kRoot.string()}}), 1));
    std::int64_t iteration = 0;
    CKPT_RETURN_IF_ERROR(sessions.Run([&](RankSession& session, HostGroup&) -> Status {
      CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
      iteration = progress.iteration;
      return CheckState(session.trainer(), static_cast<std::uint64_t>(iteration));
    }));
    return iteration;
  }

  // `run`, which must end: a rank that waits for ever fails the test program.
  static Outcome EndsInTime(const std::string& where, const std::function<Outcome()>& run) {
    constexpr std::chrono::seconds kPatience(30);
    std::future<Outcome> ended = std::async(std::launch::async, run);
    if (ended.wait_for(kPatience) != std::future_status::ready) {
      fmt::print(stderr, "{}: a rank hangs\n", where);
      std::abort();
    }
    return ended.get();
  }

  // Whether the new checkpoint is there then: once all have written, what rank 0 lives to commit.
  static bool IsSaved(unsigned victims, Phase phase) {
    const bool commits = (victims & 1) == 0 || phase == Phase::kAfterRename;
    return phase > Phase::kAccounts && commits;
  }

  static void Check(Storage& storage, const Outcome& outcome, unsigned victims, Phase phase,
                    const std::string& where, Suite& suite) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const Status& status = outcome.ranks[at];
      const bool is_victim = (victims >> rank & 1) != 0;
      if (outcome.died[at] != is_victim) suite.Fail(where + ": the wrong ranks died");
      if (status.ok()) {
        suite.Fail(fmt::format("{}: rank {} takes it for saved", where, rank));
        continue;
      }
      if (!is_victim && status.kind() != ErrorKind::kCancelled) {
        suite.Fail(fmt::format("{}: rank {} says {}", where, rank, status.ToString()));
      }
      if (!is_victim && status.ToString().find("died") == std::string::npos) {
        suite.Fail(fmt::format("{}: rank {} does not say why: {}", where, rank, status.ToString()));
      }
    }
    const Result<std::int64_t> iteration = GoOn(storage);
    if (!iteration.ok()) {
      suite.Fail(where + ": nothing loads: " + iteration.status().ToString());
      return;
    }
    if (*iteration != (IsSaved(victims, phase) ? 2 : 1)) {
      suite.Fail(fmt::format("{}: goes on from iteration {}", where, *iteration));
    }
  }
};

TEST_F(DyingRanksTest, LeaveTheLastCompleteCheckpointAndNobodyWaiting) {
  Suite suite("dying ranks, any of 4 in any of 12 phases");
  const DiskImage start = MakeDisk();
  for (unsigned victims = 1; victims < 1U << kRanks; ++victims) {
    for (int p = 0; p < kNumPhases; ++p) {
      const auto phase = static_cast<Phase>(p);
      const std::string where =
          fmt::format("ranks {:04b}, {}", victims, kPhaseNames[static_cast<std::size_t>(p)]);
      CrashStorage disk(start);
      const Outcome outcome = EndsInTime(where, [&] { return Save(disk, victims, phase); });
      suite.Count();
      Check(disk, outcome, victims, phase, where, suite);
    }
  }
  EXPECT_EQ(suite.cases(), 180U);
}

}  // namespace
}  // namespace ckpt::testing
