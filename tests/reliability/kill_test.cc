// Real programs are killed -9, again and again: nothing is lost, nothing mixed, and the next run
// completes.
#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/posix_storage.h"
#include "tests/reliability/fast_dir.h"
#include "tests/reliability/killed_process.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

// A program that is killed, and what must hold then. A new one (a training run, say) is one more of
// these.
struct KilledFlow {
  std::string name;
  Command command;
  Command again;                         // goes on after a kill
  std::function<void()> prepare;         // what is there before
  std::function<Status()> check_killed;  // old or new, whole
  std::function<Status()> check_done;    // after `again`
};

class KillTest : public ::testing::Test {
 protected:
  KillTest() {
    EXPECT_THAT(WriteSmallModel(storage_, dir() / "hf", {}), IsOk());
    EXPECT_THAT(WriteSmallModel(storage_, dir() / "other", {.seed = 2}), IsOk());
  }

  [[nodiscard]] const Path& dir() const { return dir_.path(); }
  // Alone in its directory: some targets have files beside them.
  [[nodiscard]] Path target() const { return dir() / "made" / "target"; }

  Command ConvertTo(const Path& to, const std::string& source,
                    std::vector<std::string> options = {}) {
    options.insert(options.end(), {"--files", "2"});
    return ConvertBy("hf-to-fsdp", to, source, options);
  }

  Command ConvertBy(const std::string& verb, const Path& to, const std::string& source,
                    const std::vector<std::string>& options = {}) {
    Command command = {
        CKPT_CONVERT_PROGRAM, verb, (dir() / source).string(), to.string(), "--quiet",
        "--threads",          "2"};
    command.insert(command.end(), options.begin(), options.end());
    return command;
  }

  Tree RunForTree(const Command& command, const Path& to) {
    const auto end = RunAndKill(command, {});
    EXPECT_THAT(end, IsOk());
    EXPECT_EQ(end->exit_code, 0) << end->output;
    const auto tree = ReadTree(storage_, to);
    EXPECT_THAT(tree, IsOk());
    return *tree;
  }

  void Clean() { EXPECT_THAT(storage_.RemoveAll(target().parent_path()), IsOk()); }

  // The target is one of the trees, or nothing if that is allowed.
  Status CheckTarget(const std::vector<const Tree*>& allowed, bool may_be_absent) {
    if (!boost::filesystem::exists(target())) {
      return may_be_absent ? OkStatus() : Error(ErrorKind::kMissing, "the checkpoint is gone");
    }
    CKPT_RETURN_IF_ERROR(ReadCheckpoint(storage_, target()).status());
    CKPT_ASSIGN_OR_RETURN(const Tree tree, ReadTree(storage_, target()));
    if (std::any_of(allowed.begin(), allowed.end(), [&](const Tree* t) { return *t == tree; })) {
      return OkStatus();
    }
    return Error(ErrorKind::kValueMismatch, "a mixture is there");
  }

  // At `steps` steps, evenly spread over the run, and after `delays` random times.
  void Kill(const KilledFlow& flow, int steps, int delays) {
    Suite suite("kill -9, " + flow.name);
    std::mt19937_64 rng(TestSeed(kDefaultSeed));
    flow.prepare();
    const auto traced = RunAndKill(flow.command, {.at_step = std::numeric_limits<int>::max()});
    flow.prepare();
    const auto whole = RunAndKill(flow.command, {});
    ASSERT_THAT(whole, IsOk());
    ASSERT_EQ(whole->exit_code, 0) << whole->output;
    int done_before = 0;
    const auto kill = [&](const KillPoint& point, const std::string& where) {
      flow.prepare();
      const auto end = RunAndKill(flow.command, point);
      ASSERT_THAT(end, IsOk());
      if (!end->killed) {
        ++done_before;
        if (end->exit_code != 0) suite.Fail(where + ": fails by itself: " + end->output);
      } else {
        suite.Count();
      }
      if (const Status status = flow.check_killed(); !status.ok()) {
        suite.Fail(where + ": " + status.ToString());
      }
      const auto again = RunAndKill(flow.again, {});
      ASSERT_THAT(again, IsOk());
      if (again->exit_code != 0) suite.Fail(where + ": the next run fails: " + again->output);
      if (const Status status = flow.check_done(); !status.ok()) {
        suite.Fail(where + ", next run: " + status.ToString());
      }
    };
    if (traced.ok()) {
      const int stride = std::max(traced->steps / steps, 1);
      for (int step = 0; step < traced->steps; step += stride) {
        kill({.at_step = step}, fmt::format("step {} of {}", step, traced->steps));
      }
      suite.Note(fmt::format("{} steps", traced->steps));
    } else {
      suite.Note("no steps: " + traced.status().ToString());
      delays += steps;
    }
    for (int i = 0; i < delays; ++i) {
      const std::chrono::microseconds after(rng() %
                                            static_cast<std::uint64_t>(whole->time.count() + 1));
      kill({.after = after}, fmt::format("after {} us", after.count()));
    }
    suite.Note(fmt::format("{} more runs ended before their time", done_before));
  }

  void Kill(const KilledFlow& flow) {
    if (IsLongRun()) {
      Kill(flow, 400, 400);
    } else {
      Kill(flow, 45, 40);
    }
  }

  Storage& storage_ = PosixStorage();

 private:
  FastDir dir_;
};

TEST_F(KillTest, AFreshConversionIsThereWholeOrNotAtAll) {
  const Tree expected = RunForTree(ConvertTo(dir() / "expected", "hf"), dir() / "expected");
  Kill({.name = "fresh conversion",
        .command = ConvertTo(target(), "hf"),
        .again = ConvertTo(target(), "hf", {"--resume", "--overwrite"}),
        .prepare = [&] { Clean(); },
        .check_killed = [&] { return CheckTarget({&expected}, true); },
        .check_done = [&] { return CheckTarget({&expected}, false); }});
}

// A target that is one file, which the HDF5 library judges before it gets its name, and one that
// shows what lies in others, which get their names before.
TEST_F(KillTest, AFileOfHdf5IsThereWholeOrNotAtAll) {
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{}, {"--compress", "zstd:3"}, {"--link"}, {"--files", "2"}}) {
    std::vector<std::string> again = form;
    again.insert(again.end(), {"--resume", "--overwrite"});
    const Path undisturbed = dir() / "expected" / target().filename();
    const Tree expected = RunForTree(ConvertBy("to-hdf5", undisturbed, "hf", form), undisturbed);
    const auto all_files = ReadTree(storage_, undisturbed.parent_path());
    ASSERT_THAT(all_files, IsOk());
    // A run that was killed at its very end is repeated, and parts have other names then.
    const Tree replaced = RunForTree(ConvertBy("to-hdf5", undisturbed, "hf", again), undisturbed);
    const auto replaced_files = ReadTree(storage_, undisturbed.parent_path());
    ASSERT_THAT(replaced_files, IsOk());
    Kill({.name = fmt::format("conversion to hdf5{}{}", form.empty() ? "" : " with ",
                              form.empty() ? "" : form.front()),
          .command = ConvertBy("to-hdf5", target(), "hf", form),
          .again = ConvertBy("to-hdf5", target(), "hf", again),
          .prepare = [&] { Clean(); },
          .check_killed = [&] { return CheckTarget({&expected}, true); },
          .check_done = [&]() -> Status {
            CKPT_RETURN_IF_ERROR(CheckTarget({&expected, &replaced}, false));
            CKPT_ASSIGN_OR_RETURN(const Tree tree, ReadTree(storage_, target().parent_path()));
            if (tree == *all_files || tree == *replaced_files) return OkStatus();
            return Error(ErrorKind::kValueMismatch, "other files lie beside the target");
          }});
    ASSERT_THAT(storage_.RemoveAll(undisturbed.parent_path()), IsOk());
  }
}

TEST_F(KillTest, AFreshTorchDistIsThereWholeOrNotAtAll) {
  const std::string verb = "hf-to-torch-dist";
  const Tree expected = RunForTree(ConvertBy(verb, dir() / "expected", "hf"), dir() / "expected");
  Kill({.name = "conversion to torch_dist",
        .command = ConvertBy(verb, target(), "hf"),
        .again = ConvertBy(verb, target(), "hf", {"--resume", "--overwrite"}),
        .prepare = [&] { Clean(); },
        .check_killed = [&] { return CheckTarget({&expected}, true); },
        .check_done = [&] { return CheckTarget({&expected}, false); }});
}

TEST_F(KillTest, AnOverwrittenCheckpointIsTheOldOneOrTheNewOne) {
  const Tree old = RunForTree(ConvertTo(dir() / "old", "other"), dir() / "old");
  const Tree expected = RunForTree(ConvertTo(dir() / "expected", "hf"), dir() / "expected");
  ASSERT_NE(old, expected);
  Kill({.name = "overwrite",
        .command = ConvertTo(target(), "hf", {"--overwrite"}),
        .again = ConvertTo(target(), "hf", {"--resume", "--overwrite"}),
        .prepare =
            [&] {
              Clean();
              RunForTree(ConvertTo(target(), "other"), target());
            },
        .check_killed =
            [&] {
              return CheckTarget({&old, &expected}, false);
            },
        .check_done = [&] { return CheckTarget({&expected}, false); }});
}

// The run that is killed goes on where another was killed.
TEST_F(KillTest, AResumedConversionIsThereWholeOrNotAtAll) {
  const std::vector<std::string> compress = {"--compress", "zstd:3"};
  const std::vector<std::string> resume = {"--compress", "zstd:3", "--resume", "--overwrite"};
  const Tree expected =
      RunForTree(ConvertTo(dir() / "expected", "hf", compress), dir() / "expected");
  const auto steps =
      RunAndKill(ConvertTo(target(), "hf", compress), {.at_step = std::numeric_limits<int>::max()});
  KillPoint halfway = {.after = std::chrono::milliseconds(10)};
  if (steps.ok()) halfway = {.at_step = steps->steps / 2};
  Kill({.name = "resume",
        .command = ConvertTo(target(), "hf", resume),
        .again = ConvertTo(target(), "hf", resume),
        .prepare =
            [&] {
              Clean();
              EXPECT_THAT(RunAndKill(ConvertTo(target(), "hf", compress), halfway), IsOk());
            },
        .check_killed = [&] { return CheckTarget({&expected}, true); },
        .check_done = [&] { return CheckTarget({&expected}, false); }});
}

}  // namespace
}  // namespace ckpt::testing
