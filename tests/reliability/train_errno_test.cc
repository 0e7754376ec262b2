// Every system call of a save on two ranks fails in turn, in every way it can; then of a load. In
// every form that a run can be saved in.
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "formats/megatron/root.h"
#include "tests/reliability/fast_dir.h"
#include "tests/reliability/small_model.h"
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

// What a save makes.
struct Form {
  const char* name;  // empty: the usual one
  layout::Configuration settings = {};
  bool is_run = true;  // else the weights alone, of a published model
};

std::vector<Form> Forms() {
  return {{""},
          {"torch_dist", {{"save_format", "torch_dist"}}},
          {"Bridge", {{"save_format", "torch_dist"}, {"tree", "megatron-bridge"}}},
          {"fsdp2", {{"save_format", "fsdp2"}}},
          {"hdf5", {{"save_format", "hdf5"}}},
          {"hf", {{"save_format", "hf"}}, false}};
}

struct Case {
  Form form;
  FaultCase fault;
  bool is_async = false;
};
std::string NameOf(const Case& c) {
  std::string name =
      fmt::format("{}{}{}", c.form.name, c.fault.name, c.is_async ? "InTheBackground" : "AtOnce");
  std::erase(name, ' ');
  return name;
}
void PrintTo(const Case& c, std::ostream* os) { *os << NameOf(c); }

// Weights alone are written at once, whatever the settings say.
std::vector<Case> SaveCases() {
  std::vector<Case> cases;
  for (const Form& form : Forms()) {
    for (const FaultCase& fault : kFaults) {
      cases.push_back({form, fault, false});
      if (form.is_run) cases.push_back({form, fault, true});
    }
  }
  return cases;
}

std::vector<Case> LoadCases() {
  std::vector<Case> cases;
  for (const Form& form : Forms()) {
    for (const FaultCase& fault : kFaults) {
      if (form.is_run) cases.push_back({form, fault});
    }
  }
  return cases;
}

// A root with state 1 at iteration 1, to which state 2 is added as iteration 2.
class TrainErrnoTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().form.is_run) return;
    ASSERT_THAT(WriteSmallModel(storage_, model(), {.hidden = 16}), IsOk());
  }

  [[nodiscard]] layout::Configuration Settings() const {
    const Form& form = GetParam().form;
    const layout::Configuration model_settings =
        form.is_run
            ? TinySettings()
            : layout::Configuration{
                  {"init", "hf:" + model().string()}, {"seq_length", 4}, {"train_iters", 10}};
    return With(With(model_settings, form.settings), {{"save", root().string()}});
  }

  // For the lines of the report: " as hdf5 in the background".
  static std::string Described() {
    const auto& [form, fault, is_async] = GetParam();
    const std::string as = *form.name == '\0' ? "" : fmt::format(" as {}", form.name);
    return as + (is_async ? " in the background" : "");
  }

  // Whether the fault is tried at this call.
  static bool IsTriedAt(std::size_t call, bool is_sticky) {
    const auto& [form, fault, is_async] = GetParam();
    const std::size_t n = call + static_cast<std::size_t>(fault.code) + (is_sticky ? 1 : 0);
    // Other forms share most calls with the usual one.
    return IsTried(n, *form.name == '\0' ? 7 : 61);
  }

  Status Save(std::uint64_t state, const SyscallFault* fault, std::size_t* calls) {
    CKPT_ASSIGN_OR_RETURN(SmallSessions sessions,
                          SmallSessions::Create(storage_, Settings(), kRanks));
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

  // The iteration that a run goes on from, whose state is whole. 0: from none. No run goes on from
  // weights alone: then the one that a reader of the root gets.
  Result<std::int64_t> GoOn(int ranks = 1) {
    if (!GetParam().form.is_run) return ReadWeights();
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

  Result<std::int64_t> ReadWeights() {
    CKPT_ASSIGN_OR_RETURN(const std::string name, megatron::ReadTracker(storage_, root()));
    CKPT_ASSIGN_OR_RETURN(const std::string digest, ReadCheckpoint(storage_, root() / name));
    // Those of the first save are as they should be: nothing disturbed it.
    const auto [known, is_new] = weights_.emplace(name, digest);
    if (known->second == digest) return megatron::IterationOf(name).value();
    return Error(ErrorKind::kValueMismatch, "not the weights that were saved").File(name);
  }

  Status ForgetSecondSave() {
    CKPT_RETURN_IF_ERROR(storage_.RemoveAll(root() / megatron::IterationName(2)));
    // A run finds what the tracker does not name.
    if (GetParam().form.is_run) return OkStatus();
    return megatron::PointTrackerTo(storage_, root(), 1);
  }

  // What an error must be. An interrupted call and a part of a transfer are none.
  static void CheckError(const Status& status, bool is_sticky, const std::string& where,
                         Suite& suite) {
    const FaultCase& fault = GetParam().fault;
    const bool must_pass = fault.passes_once && (!is_sticky || fault.code == 0);
    if (must_pass) suite.Fail(where + ": fails: " + status.ToString());
    const Problem& problem = status.problems().front();
    const bool blames_bytes = problem.kind == ErrorKind::kBadMetadata ||
                              problem.kind == ErrorKind::kChecksum ||
                              problem.kind == ErrorKind::kValueMismatch;
    const bool is_clear = !problem.file.empty() && problem.kind != ErrorKind::kInternal &&
                          problem.kind != ErrorKind::kCancelled && !blames_bytes;
    if (!is_clear) suite.Fail(where + ": says only " + status.ToString());
  }

  [[nodiscard]] Path root() const { return dir_.path() / "run"; }
  // A published one, for weights alone.
  [[nodiscard]] Path model() const { return dir_.path() / "hf"; }

  Storage& storage_ = PosixStorage();

 private:
  FastDir dir_;
  std::map<std::string, std::string> weights_;  // digests by the checkpoint's name
};

INSTANTIATE_TEST_SUITE_P(Saves, TrainErrnoTest, ::testing::ValuesIn(SaveCases()),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(TrainErrnoTest, GivesAClearErrorOrTheCheckpointAndKeepsTheOldOne) {
  const FaultCase& fault = GetParam().fault;
  Suite suite(fmt::format("errno, save on 2 ranks{}, {}", Described(), fault.name));
  ASSERT_THAT(Save(1, nullptr, nullptr), IsOk());
  ASSERT_THAT(GoOn(), IsOkAndHolds(1));
  std::size_t calls = 0;
  const SyscallFault none = {.of_all_threads = true};
  ASSERT_THAT(Save(2, &none, &calls), IsOk());
  ASSERT_THAT(GoOn(), IsOkAndHolds(2));
  int errors = 0;
  for (const bool is_sticky : {false, true}) {
    for (std::size_t call = 0; call < calls; ++call) {
      if (!IsTriedAt(call, is_sticky)) continue;
      const std::string where =
          fmt::format("{} at call {} of {}", is_sticky ? "from then on" : "once", call, calls);
      ASSERT_THAT(ForgetSecondSave(), IsOk());
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
INSTANTIATE_TEST_SUITE_P(Loads, TrainLoadErrnoTest, ::testing::ValuesIn(LoadCases()),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(TrainLoadErrnoTest, GivesAClearErrorOrTheNewestCheckpoint) {
  const FaultCase& fault = GetParam().fault;
  Suite suite(fmt::format("errno, load on 2 ranks{}, {}", Described(), fault.name));
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
      if (!IsTriedAt(call, is_sticky)) continue;
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
