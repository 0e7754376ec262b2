// Every system call of a save on two ranks fails in turn, in every way it can.
#include <cerrno>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "tests/reliability/fast_dir.h"
#include "tests/reliability/suite.h"
#include "tests/reliability/syscall_faults.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/checkpoint/state_pattern.h"
#include "tests/trainer/run/small_session.h"

namespace ckpt::testing {
namespace {

using train::RankSession;
using train::RunProgress;
using trainer::HostGroup;

constexpr int kRanks = 2;

struct FaultCase {
  const char* name;
  int code;                  // as SyscallFault::code
  bool passes_once = false;  // trying again is right
};

const std::vector<FaultCase> kFaults = {{.name = "ENOSPC", .code = ENOSPC},
                                        {.name = "EIO", .code = EIO},
                                        {.name = "EDQUOT", .code = EDQUOT},
                                        {.name = "EMFILE", .code = EMFILE},
                                        {.name = "EAGAIN", .code = EAGAIN},
                                        {.name = "EINTR", .code = EINTR, .passes_once = true},
                                        {.name = "short transfer", .code = 0, .passes_once = true}};

struct Case {
  FaultCase fault;
  bool is_async = false;
};
std::string NameOf(const Case& c) {
  std::string name = fmt::format("{}{}", c.fault.name, c.is_async ? "InTheBackground" : "AtOnce");
  std::erase(name, ' ');
  return name;
}
void PrintTo(const Case& c, std::ostream* os) { *os << NameOf(c); }

std::vector<Case> Cases(const std::vector<bool>& is_async) {
  std::vector<Case> cases;
  for (const FaultCase& fault : kFaults) {
    for (const bool async : is_async) cases.push_back({fault, async});
  }
  return cases;
}

// A root with state 1 at iteration 1, to which state 2 is added as iteration 2.
class TrainErrnoTest : public ::testing::TestWithParam<Case> {
 protected:
  Status Save(std::uint64_t state, const SyscallFault* fault, std::size_t* calls) {
    CKPT_ASSIGN_OR_RETURN(
        SmallSessions sessions,
        SmallSessions::Create(storage_, With(TinySettings(), {{"save", root().string()}}), kRanks));
    sessions.set_async_save(GetParam().is_async);
    std::optional<SyscallFaults> faults;
    const Status status = sessions.Run([&](RankSession& session, HostGroup& world) -> Status {
      CKPT_RETURN_IF_ERROR(SetState(session.trainer(), state));
      CKPT_RETURN_IF_ERROR(world.Barrier());
      if (fault != nullptr && world.rank() == 0) faults.emplace(*fault);
      CKPT_RETURN_IF_ERROR(world.Barrier());
      const auto iteration = static_cast<std::int64_t>(state);
      CKPT_RETURN_IF_ERROR(session.checkpoints().Save(
          {.iteration = iteration, .consumed_samples = iteration, .next_loss = {}}));
      return session.checkpoints().Finish();
    });
    if (calls != nullptr && faults) *calls = faults->calls().size();
    return status;
  }

  // The iteration that a run goes on from, whose state is whole. 0: from none.
  Result<std::int64_t> GoOn(int ranks = 1) {
    CKPT_ASSIGN_OR_RETURN(
        SmallSessions sessions,
        SmallSessions::Create(
            storage_, With(TinySettings(), {{"load", root().string()}, {"save", root().string()}}),
            ranks));
    if (!sessions.run().goes_on()) return 0;
    std::int64_t iteration = 0;
    CKPT_RETURN_IF_ERROR(sessions.Run([&](RankSession& session, HostGroup& world) -> Status {
      CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
      if (world.rank() == 0) iteration = progress.iteration;
      return CheckState(session.trainer(), static_cast<std::uint64_t>(progress.iteration));
    }));
    return iteration;
  }

  // What an error must be. An interrupted call and a part of a transfer are none.
  static void CheckError(const Status& status, bool is_sticky, const std::string& where,
                         Suite& suite) {
    const FaultCase& fault = GetParam().fault;
    const bool must_pass = fault.passes_once && (!is_sticky || fault.code == 0);
    if (must_pass) suite.Fail(where + ": fails: " + status.ToString());
    const Problem& problem = status.problems().front();
    const bool is_clear = !problem.file.empty() && problem.kind != ErrorKind::kInternal &&
                          problem.kind != ErrorKind::kCancelled;
    if (!is_clear) suite.Fail(where + ": says only " + status.ToString());
  }

  [[nodiscard]] Path root() const { return dir_.path() / "run"; }

  Storage& storage_ = PosixStorage();

 private:
  FastDir dir_;
};

INSTANTIATE_TEST_SUITE_P(Saves, TrainErrnoTest, ::testing::ValuesIn(Cases({false, true})),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(TrainErrnoTest, GivesAClearErrorOrTheCheckpointAndKeepsTheOldOne) {
  const auto& [fault, is_async] = GetParam();
  Suite suite(fmt::format("errno, save on 2 ranks{}, {}", is_async ? " in the background" : "",
                          fault.name));
  ASSERT_THAT(Save(1, nullptr, nullptr), IsOk());
  std::size_t calls = 0;
  const SyscallFault none = {.of_all_threads = true};
  ASSERT_THAT(Save(2, &none, &calls), IsOk());
  ASSERT_THAT(GoOn(), IsOkAndHolds(2));
  int errors = 0;
  for (const bool is_sticky : {false, true}) {
    for (std::size_t call = 0; call < calls; ++call) {
      if (!IsTried(call + static_cast<std::size_t>(fault.code) + (is_sticky ? 1 : 0))) continue;
      const std::string where =
          fmt::format("{} at call {} of {}", is_sticky ? "from then on" : "once", call, calls);
      ASSERT_THAT(storage_.RemoveAll(root() / "iter_0000002"), IsOk());
      const SyscallFault injected = {.code = fault.code,
                                     .at = static_cast<int>(call),
                                     .is_sticky = is_sticky,
                                     .of_all_threads = true};
      const Status status = Save(2, &injected, nullptr);
      suite.Count();
      const Result<std::int64_t> iteration = GoOn();
      if (!iteration.ok()) {
        suite.Fail(where + ": nothing loads: " + iteration.status().ToString());
        continue;
      }
      if (status.ok()) {
        if (*iteration != 2) suite.Fail(where + ": OK, but nothing was saved");
        continue;
      }
      ++errors;
      CheckError(status, is_sticky, where, suite);
    }
  }
  EXPECT_EQ(errors == 0, fault.code == 0);
  suite.Note(fmt::format("{} calls, {} errors", calls, errors));
}

// Between two checkpoints.
class TrainLoadErrnoTest : public TrainErrnoTest {};
INSTANTIATE_TEST_SUITE_P(Loads, TrainLoadErrnoTest, ::testing::ValuesIn(Cases({false})),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(TrainLoadErrnoTest, GivesAClearErrorOrTheNewestCheckpoint) {
  const FaultCase& fault = GetParam().fault;
  Suite suite(fmt::format("errno, load on 2 ranks, {}", fault.name));
  ASSERT_THAT(Save(1, nullptr, nullptr), IsOk());
  ASSERT_THAT(Save(2, nullptr, nullptr), IsOk());
  std::size_t calls = 0;
  {
    const SyscallFaults counter({.of_all_threads = true});
    ASSERT_THAT(GoOn(kRanks), IsOkAndHolds(2));
    calls = counter.calls().size();
  }
  int errors = 0;
  for (const bool is_sticky : {false, true}) {
    for (std::size_t call = 0; call < calls; ++call) {
      if (!IsTried(call + static_cast<std::size_t>(fault.code) + (is_sticky ? 1 : 0))) continue;
      const std::string where =
          fmt::format("{} at call {} of {}", is_sticky ? "from then on" : "once", call, calls);
      const SyscallFaults faults({.code = fault.code,
                                  .at = static_cast<int>(call),
                                  .is_sticky = is_sticky,
                                  .of_all_threads = true});
      const Result<std::int64_t> iteration = GoOn(kRanks);
      suite.Count();
      if (iteration.ok()) {
        // What a disk does not give is as good as damaged; nothing else lets a run go back.
        const bool may_go_back = fault.code == EIO;
        if (*iteration != 2 && !may_go_back) {
          suite.Fail(fmt::format("{}: goes on from {}", where, *iteration));
        }
        continue;
      }
      ++errors;
      CheckError(iteration.status(), is_sticky, where, suite);
    }
  }
  EXPECT_EQ(errors == 0, fault.code == 0);
  suite.Note(fmt::format("{} calls, {} errors", calls, errors));
}

}  // namespace
}  // namespace ckpt::testing
