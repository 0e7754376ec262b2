// Real programs are killed -9, again and again: nothing is lost, nothing mixed, and the next run
// completes.
#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/posix_storage.h"
#include "formats/registry/registry.h"
#include "tests/reliability/fast_dir.h"
#include "tests/reliability/flow_site.h"
#include "tests/reliability/flows.h"
#include "tests/reliability/killed_process.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

// Flows by the programs themselves, which are killed.
class KillTest : public ::testing::Test {
 protected:
  void Create(const Flow& flow) {
    auto site = FlowSite::Create(PosixStorage(), flow, kHidden, dir_.path());
    ASSERT_THAT(site, IsOk());
    site_.emplace(*std::move(site));
  }

  [[nodiscard]] FlowSite& site() { return *site_; }

  // What a user types.
  static Command Repair(const ConvertOptions& options) {
    return {CKPT_INSPECT_PROGRAM, "repair", options.source.string(), "-o", options.target.string(),
            "--threads",          "2"};
  }

  static Command Convert(const ConvertOptions& options) {
    const std::string to(options.to.container->name);
    Command command = {CKPT_CONVERT_PROGRAM};
    const Command verb = options.link ? Command{"to-" + to} : Command{"convert", "--to", to};
    command.insert(command.end(), verb.begin(), verb.end());
    const auto add = [&](const std::string& option, const std::string& value = {}) {
      command.push_back(option);
      if (!value.empty()) command.push_back(value);
    };
    if (options.files > 0) add("--files", fmt::format("{}", options.files));
    if (options.zstd_level) add("--compress", fmt::format("zstd:{}", *options.zstd_level));
    if (options.parity_group > 0) add("--parity", fmt::format("{}", options.parity_group));
    for (const auto& [name, value] : options.to.forms) add("--" + name, value);
    if (options.link) add("--link");
    if (options.overwrite) add("--overwrite");
    if (options.resume) add("--resume");
    if (options.worker) {
      add("--worker", fmt::format("{}/{}", options.worker->number, options.worker->count));
    }
    if (options.finalize) add("--finalize");
    command.insert(command.end(),
                   {"--quiet", "--threads", "2", options.source.string(), options.target.string()});
    return command;
  }

  // Those of the flow's workers, and the one that completes their work.
  std::vector<Command> Shared(ConvertOptions options) {
    std::vector<Command> commands;
    for (int number = 0; number < site().flow().workers; ++number) {
      options.worker = WorkerId{.number = number, .count = site().flow().workers};
      commands.push_back(Convert(options));
    }
    options.worker.reset();
    options.finalize = true;
    commands.push_back(Convert(options));
    return commands;
  }

  std::vector<Command> Commands(const ConvertOptions& options) {
    if (site().flow().repairs) return {Repair(options)};
    if (site().flow().workers > 0) return Shared(options);
    return {Convert(options)};
  }

  // One after the other until one fails or is killed: as if they were one program.
  static Result<ProcessEnd> Run(const std::vector<Command>& commands, KillPoint point = {}) {
    ProcessEnd all;
    for (const Command& command : commands) {
      CKPT_ASSIGN_OR_RETURN(const ProcessEnd end, RunAndKill(command, point));
      all = {.killed = end.killed,
             .exit_code = end.exit_code,
             .time = all.time + end.time,
             .steps = all.steps + end.steps,
             .output = all.output + end.output};
      if (end.exit_code != 0) break;
      if (point.at_step) *point.at_step -= end.steps;
      if (point.after) *point.after -= end.time;
    }
    return all;
  }

  // Whatever the first run came to.
  Result<ProcessEnd> GoOn() {
    ConvertOptions options = site().recovery_options();
    if (site().flow().repairs) {  // it replaces nothing
      if (boost::filesystem::exists(site().target())) return ProcessEnd{.exit_code = 0};
      return Run({Repair(options)});
    }
    if (site().flow().workers == 0) return Run({Convert(options)});
    options.resume = false;
    // Those that have finished are refused, and so are all when their work is one already.
    ProcessEnd end;
    for (const Command& command : Shared(options)) {
      CKPT_ASSIGN_OR_RETURN(end, Run({command}));
    }
    if (end.exit_code == 0 || end.output.find(kNoWorkers) == std::string::npos) return end;
    return Run({Convert(options)});
  }

  // At `steps` steps, evenly spread over the run, and after `delays` random times. `prepare` comes
  // before each run.
  void Kill(const std::string& name, const ConvertOptions& options,
            const std::function<void()>& prepare, int steps, int delays) {
    Suite suite("kill -9, " + name);
    std::mt19937_64 rng(TestSeed(kDefaultSeed));
    const std::vector<Command> commands = Commands(options);
    prepare();
    const auto traced = Run(commands, {.at_step = std::numeric_limits<int>::max()});
    prepare();
    const auto whole = Run(commands);
    ASSERT_THAT(whole, IsOk());
    ASSERT_EQ(whole->exit_code, 0) << whole->output;
    ASSERT_THAT(site().Check(true), IsOk());
    std::chrono::microseconds time = whole->time;  // of the fastest run so far
    const auto kill = [&](const KillPoint& point, const std::string& where) {
      prepare();
      const auto end = Run(commands, point);
      ASSERT_THAT(end, IsOk());
      if (!end->killed) {
        time = std::min(time, end->time);
        if (end->exit_code != 0) suite.Fail(where + ": fails by itself: " + end->output);
      } else {
        suite.Count();
      }
      if (const Status status = CheckKilled(!end->killed); !status.ok()) {
        suite.Fail(where + ": " + status.ToString());
      }
      const auto again = GoOn();
      ASSERT_THAT(again, IsOk());
      if (again->exit_code != 0) suite.Fail(where + ": the next run fails: " + again->output);
      if (const Status status = site().Check(true); !status.ok()) {
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
      const std::chrono::microseconds after(rng() % static_cast<std::uint64_t>(time.count() + 1));
      kill({.after = after}, fmt::format("after {} us", after.count()));
    }
  }

  void Kill(const std::string& name, const ConvertOptions& options,
            const std::function<void()>& prepare) {
    if (IsLongRun()) {
      Kill(name, options, prepare, 400, 400);
    } else {
      Kill(name, options, prepare, 7, 3);
    }
  }

 private:
  static constexpr int kHidden = 32;
  static constexpr char kNoWorkers[] = "no worker has written here";

  // Old or new, and every byte of it.
  Status CheckKilled(bool must_be_new) {
    CKPT_RETURN_IF_ERROR(site().Check(must_be_new));
    if (!boost::filesystem::exists(site().target())) return OkStatus();
    return ReadCheckpoint(PosixStorage(), site().target()).status();
  }

  FastDir dir_;
  std::optional<FlowSite> site_;
};

class KillFlowTest : public KillTest, public ::testing::WithParamInterface<Flow> {};
INSTANTIATE_TEST_SUITE_P(Flows, KillFlowTest, ::testing::ValuesIn(Flows()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(KillFlowTest, LeavesTheOldOrTheNewCheckpointNeverAMixture) {
  Create(GetParam());
  Kill(GetParam().name, site().options(), [&] { EXPECT_THAT(site().Reset(), IsOk()); });
}

// The run that is killed goes on where another was killed.
TEST_F(KillTest, AResumedConversionIsThereWholeOrNotAtAll) {
  Create({.name = "resume", .zstd_level = 3});
  ASSERT_THAT(site().Reset(), IsOk());
  const auto steps = Run(Commands(site().options()), {.at_step = std::numeric_limits<int>::max()});
  KillPoint halfway = {.after = std::chrono::milliseconds(10)};
  if (steps.ok()) halfway = {.at_step = steps->steps / 2};
  Kill("resume", site().recovery_options(), [&] {
    EXPECT_THAT(site().Reset(), IsOk());
    EXPECT_THAT(Run(Commands(site().options()), halfway), IsOk());
  });
}

}  // namespace
}  // namespace ckpt::testing
