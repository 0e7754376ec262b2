// Power failures behind every operation of a trainer's saves, with every outcome of what was not
// synced.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/weight_reader.h"
#include "core/base/units.h"
#include "formats/megatron/root.h"
#include "tests/reliability/crash_states.h"
#include "tests/reliability/crash_storage.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/checkpoint/state_pattern.h"
#include "tests/trainer/run/small_session.h"

namespace ckpt::testing {
namespace {

using train::RankSession;
using train::RunProgress;
using trainer::HostGroup;

// The parent does not exist before: its own name must become durable too.
const Path kRoot = "/runs/today/model";
// A published one, for weights alone.
const Path kModel = "/hf";

// One save: a state under an iteration.
struct SavedState {
  std::uint64_t state = 0;
  std::int64_t iteration = 0;
};

struct Flow {
  const char* name;
  std::vector<SavedState> before = {};
  std::vector<SavedState> saves = {};
  std::int64_t keep = 0;
};

std::vector<Flow> Flows() {
  return {{"Fresh", {}, {{1, 1}}},
          {"Overwriting", {{1, 1}, {2, 2}}, {{12, 2}}},
          {"Retention", {{1, 1}, {2, 2}}, {{3, 3}, {4, 4}}, 2}};
}

struct Case {
  Flow flow;
  int ranks = 1;
  bool is_async = false;
  const char* format = "fsdp_dtensor";
  bool is_of_bridge = false;  // with the files of Megatron-Bridge

  // Else what is saved are the weights alone, of a published model.
  [[nodiscard]] bool is_run() const { return format != std::string_view("hf"); }
};
std::string NameOf(const Case& c) {
  static const std::map<std::string_view, std::string_view> suffixes = {
      {"fsdp_dtensor", ""},
      {"torch_dist", "InTorchDist"},
      {"fsdp2", "InFsdp2"},
      {"hdf5", "InHdf5"},
      {"hf", "InHf"}};
  return fmt::format("{}{}On{}{}{}", c.flow.name, c.is_async ? "Async" : "", c.ranks,
                     suffixes.at(c.format), c.is_of_bridge ? "OfBridge" : "");
}
void PrintTo(const Case& c, std::ostream* os) { *os << NameOf(c); }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Flow& flow : Flows()) {
    for (const int ranks : {1, 2, 4}) {
      for (const bool is_async : {false, true}) cases.push_back({flow, ranks, is_async});
    }
    for (const char* format : {"torch_dist", "fsdp2", "hdf5"}) {
      for (const bool is_async : {false, true}) cases.push_back({flow, 2, is_async, format});
    }
    cases.push_back({flow, 2, false, "torch_dist", true});
    // Weights are written at once, whatever the settings say.
    cases.push_back({flow, 2, false, "hf"});
  }
  return cases;
}

layout::Configuration SettingsOf(const Case& c) {
  layout::Configuration settings = {
      {"save", kRoot.string()}, {"keep_checkpoints", c.flow.keep}, {"save_format", c.format}};
  if (c.is_of_bridge) settings["tree"] = "megatron-bridge";
  return With(c.is_run() ? TinySettings()
                         : layout::Configuration{{"init", "hf:" + kModel.string()},
                                                 {"seq_length", 4},
                                                 {"train_iters", 10}},
              settings);
}

class TrainCrashStatesTest : public ::testing::TestWithParam<Case> {
 protected:
  // The saves of a run, and how many operations were done when each had ended.
  struct Run {
    std::vector<StorageOp> ops;
    std::vector<std::size_t> durable_at;
    DiskImage image;
  };

  static Run Save(const DiskImage& start, const std::vector<SavedState>& saves, const Case& c) {
    CrashStorage disk(start);
    Run run;
    EXPECT_THAT(SaveOn(disk, saves, c, run), IsOk());
    run.ops = disk.ops();
    run.image = disk.image();
    return run;
  }

  // Adds each save that ended to `run.durable_at`.
  static Status SaveOn(CrashStorage& disk, std::span<const SavedState> saves, const Case& c,
                       Run& run) {
    CKPT_ASSIGN_OR_RETURN(SmallSessions sessions,
                          SmallSessions::Create(disk, SettingsOf(c), c.ranks));
    sessions.set_async_save(c.is_async);
    return sessions.Run([&](RankSession& session, HostGroup& world) -> Status {
      for (const auto& [state, iteration] : saves) {
        CKPT_RETURN_IF_ERROR(SaveState(session, state, iteration));
        // Training changes what was saved while it is written.
        CKPT_RETURN_IF_ERROR(SetState(session.trainer(), state + 1000));
        CKPT_RETURN_IF_ERROR(session.checkpoints().Poll());
        CKPT_RETURN_IF_ERROR(session.checkpoints().Finish());
        if (world.rank() == 0) run.durable_at.push_back(disk.ops().size());
        CKPT_RETURN_IF_ERROR(world.Barrier());
      }
      return OkStatus();
    });
  }

  // The first run is killed before operation number `killed`, without a power failure: what it
  // wrote is in memory, not on the disk. The second one makes the saves that had not ended.
  static Run SaveKilled(const DiskImage& start, const Case& c, std::size_t killed) {
    CrashStorage disk(start);
    Run run;
    disk.StopAt(killed);
    EXPECT_FALSE(SaveOn(disk, c.flow.saves, c, run).ok());
    disk.StopAt(std::nullopt);
    const auto left = std::span(c.flow.saves).subspan(run.durable_at.size());
    EXPECT_THAT(SaveOn(disk, left, c, run), IsOk());
    run.ops = disk.ops();
    return run;
  }

  // What a run that goes on from the disk starts with: "state 3", "nothing", or what is wrong. No
  // run goes on from weights alone: then what a reader of the root gets.
  static std::string GoOn(const DiskImage& image) {
    CrashStorage disk(image);
    if (!GetParam().is_run()) {
      const Result<std::string> seen = ReadWeights(disk);
      return seen.ok() ? *seen : seen.status().ToString();
    }
    auto sessions = SmallSessions::Create(
        disk, With(TinySettings(), {{"load", kRoot.string()}, {"save", kRoot.string()}}), 1);
    if (!sessions.ok()) return sessions.status().ToString();
    if (!sessions->run().goes_on()) return "nothing";
    std::string seen;
    const Status status = sessions->Run([&](RankSession& session, HostGroup&) -> Status {
      CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
      const auto state = static_cast<std::uint64_t>(session.trainer().optimizer().steps());
      CKPT_RETURN_IF_ERROR(CheckState(session.trainer(), state));
      seen = Seen({state, progress.iteration});
      return OkStatus();
    });
    return status.ok() ? seen : status.ToString();
  }
  static Result<std::string> ReadWeights(CrashStorage& disk) {
    // Each that has its name is whole, whether or not the tracker leads to it.
    CKPT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> iterations,
                          megatron::ListIterations(disk, kRoot));
    std::map<std::string, std::string> seen;
    for (const std::int64_t iteration : iterations) {
      const std::string name = megatron::IterationName(iteration);
      CKPT_ASSIGN_OR_RETURN(const std::uint64_t state, StateOfWeights(disk, kRoot / name));
      seen[name] = Seen({state, iteration});
    }
    const Result<std::string> newest = megatron::ReadTracker(disk, kRoot);
    if (!newest.ok() && newest.status().kind() == ErrorKind::kNotFound) {
      return std::string("nothing");
    }
    CKPT_RETURN_IF_ERROR(newest.status());
    const auto found = seen.find(*newest);
    return found == seen.end() ? "the tracker leads nowhere" : found->second;
  }

  // The state whose weights all of these are.
  static Result<std::uint64_t> StateOfWeights(Storage& disk, const Path& checkpoint) {
    CKPT_RETURN_IF_ERROR(ReadCheckpoint(disk, checkpoint).status());
    CKPT_ASSIGN_OR_RETURN(const ModelSource model, OpenModel(disk, checkpoint, {}));
    CKPT_ASSIGN_OR_RETURN(WeightReader reader, WeightReader::Open(model, "trainer", {}, kMiB));
    for (const std::uint64_t state : {1U, 2U, 3U, 4U, 12U, 77U}) {
      bool is_it = true;
      for (const TargetTensor& tensor : reader.view().tensors) {
        const Pattern pattern(state, trainer::kWeightsPart, tensor.key);
        std::vector<float> values(static_cast<std::size_t>(NumElements(tensor.shape)));
        CKPT_RETURN_IF_ERROR(reader.ReadRows(tensor.key, 0, tensor.shape.front(), values));
        for (std::size_t i = 0; i < values.size() && is_it; ++i) {
          is_it = values[i] == pattern.At(static_cast<std::int64_t>(i));
        }
        if (!is_it) break;
      }
      if (is_it) return state;
    }
    return Error(ErrorKind::kValueMismatch, "weights of no state").File(checkpoint.string());
  }

  static std::string Seen(const SavedState& saved) {
    return fmt::format("state {} at {}", saved.state, saved.iteration);
  }

  // Of all that a run can go on from, and the names of what it must pass over.
  static std::string HashVisible(const DiskImage& image) {
    const std::optional<NodeId> root = image.Find(kRoot);
    if (!root) return "no root";
    std::string hash;
    for (const auto& [name, child] : image.node(*root).entries) {
      hash += name + "\n";
      const bool is_leftover =
          name.ends_with(".ckptkit-partial") || name.ends_with(".ckptkit-removed");
      if (!is_leftover) hash += image.HashTree(kRoot / name) + "\n";
    }
    return hash;
  }

  // What may be seen behind `length` operations: the last durable save, or the one under way.
  std::vector<std::string> Allowed(const Run& run, std::size_t length) const {
    const Flow& flow = GetParam().flow;
    std::size_t done = 0;
    while (done < run.durable_at.size() && run.durable_at[done] <= length) ++done;
    std::vector<std::string> allowed;
    if (done > 0) {
      allowed.push_back(Seen(flow.saves[done - 1]));
    } else {
      allowed.push_back(flow.before.empty() ? "nothing" : Seen(flow.before.back()));
    }
    if (done < flow.saves.size()) allowed.push_back(Seen(flow.saves[done]));
    return allowed;
  }

  // A run goes on from the disk that the failure left, saves, and keeps it.
  static void Recover(const DiskImage& image, const std::string& where, Suite& suite) {
    suite.Count();
    const SavedState next = {77, 9};
    Case again = GetParam();
    again.is_async = false;
    const Run run = Save(image, {next}, again);
    ForEachCrashState(image, run.ops, {.max_states = 1}, [&](const DiskImage& durable) {
      const std::string seen = GoOn(durable);
      if (seen != Seen(next)) suite.Fail(where + ": recovery gives " + seen);
    });
  }

  [[nodiscard]] static DiskImage Start() {
    const Flow& flow = GetParam().flow;
    Case before = {.flow = flow, .ranks = 2};
    CrashStorage disk;
    if (!GetParam().is_run()) {
      before.format = GetParam().format;
      EXPECT_THAT(WriteSmallModel(disk, kModel, {.hidden = 16}), IsOk());
    }
    if (flow.before.empty()) return disk.image();
    return Save(disk.image(), flow.before, before).image;
  }

  // Every state behind each of the operations of `run` from number `first` on.
  void Enumerate(const DiskImage& start, const Run& run, std::size_t first, std::size_t max_states,
                 const std::string& what, Suite& suite) {
    const std::size_t recovery_stride = IsLongRun() ? 50 : 400;
    for (std::size_t length = first; length <= run.ops.size(); ++length) {
      const std::string where =
          fmt::format("{}, behind operation {} of {}", what, length, run.ops.size());
      const std::vector<std::string> allowed = Allowed(run, length);
      const CrashStateOptions options = {.max_states = max_states, .seed = TestSeed(kDefaultSeed)};
      const auto visit = [&](const DiskImage& image) {
        suite.Count();
        const std::string visible = HashVisible(image);
        auto seen = verdicts_.find(visible);
        if (seen == verdicts_.end()) seen = verdicts_.emplace(visible, GoOn(image)).first;
        if (std::ranges::find(allowed, seen->second) == allowed.end()) {
          suite.Fail(where + ": a run goes on from " + seen->second);
        }
        if (!distinct_.insert(image.HashTree("/runs")).second) return;
        if (distinct_.size() % recovery_stride == 0) Recover(image, where, suite);
      };
      ForEachCrashState(start, std::span(run.ops).first(length), options, visit);
    }
  }

  void NoteDistinct(const Run& run, Suite& suite) const {
    suite.Note(fmt::format("{} disks, {} roots, {} operations", distinct_.size(), verdicts_.size(),
                           run.ops.size()));
  }

 private:
  std::map<std::string, std::string> verdicts_;  // by what is visible
  std::unordered_set<std::string> distinct_;
};

INSTANTIATE_TEST_SUITE_P(Saves, TrainCrashStatesTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(TrainCrashStatesTest, LeaveACheckpointThatIsWholeAndTheNewest) {
  Suite suite("trainer crash states, " + NameOf(GetParam()));
  const DiskImage start = Start();
  const Run run = Save(start, GetParam().flow.saves, GetParam());
  Enumerate(start, run, 0, IsLongRun() ? 2'000 : 16, "first run", suite);
  NoteDistinct(run, suite);
}

TEST_P(TrainCrashStatesTest, OfARunThatGoesOnAfterAKillAreTheSame) {
  Suite suite("trainer crash states after a kill, " + NameOf(GetParam()));
  const DiskImage start = Start();
  const Run whole = Save(start, GetParam().flow.saves, GetParam());
  const std::size_t step = std::max<std::size_t>(whole.ops.size() / (IsLongRun() ? 10 : 2), 1);
  for (std::size_t killed = 1; killed < whole.ops.size(); ++killed) {
    // Behind a step that changes names the most is at stake.
    const StorageOp::Kind kind = whole.ops[killed - 1].kind;
    const bool moves = kind == StorageOp::Kind::kMove || kind == StorageOp::Kind::kExchange;
    if (killed % step != 0 && !moves) continue;
    Enumerate(start, SaveKilled(start, GetParam(), killed), killed, IsLongRun() ? 40 : 4,
              fmt::format("killed behind operation {}", killed), suite);
  }
  NoteDistinct(whole, suite);
}

// That none is found above means something only if a save that syncs less would fail.
class MissingSyncTest : public TrainCrashStatesTest {};
INSTANTIATE_TEST_SUITE_P(Saves, MissingSyncTest, ::testing::Values(Case{Flows().front(), 2, false}),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(MissingSyncTest, IsFound) {
  const Run run = Save({}, GetParam().flow.saves, GetParam());
  for (const StorageOp::Kind kind : {StorageOp::Kind::kSync, StorageOp::Kind::kSyncDirectory}) {
    std::vector<StorageOp> ops = run.ops;
    std::erase_if(ops, [kind](const StorageOp& op) { return op.kind == kind; });
    int lost = 0;
    ForEachCrashState({}, ops, {.max_states = 40, .seed = TestSeed(kDefaultSeed)},
                      [&](const DiskImage& image) {
                        lost += GoOn(image) != Seen(GetParam().flow.saves.back()) ? 1 : 0;
                      });
    EXPECT_GT(lost, 0);
  }
}

}  // namespace
}  // namespace ckpt::testing
