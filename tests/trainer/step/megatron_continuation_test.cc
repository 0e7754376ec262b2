// Runs that go on where Megatron-LM stopped: the state is what it stored, the losses are those it
// had.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "converters/config/run_settings.h"
#include "converters/verbs/training_state.h"
#include "core/base/hash.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/step/held_rows.h"
#include "tests/trainer/step/whole_state.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/optim/schedule.h"
#include "trainer/run/internal/load_state.h"
#include "trainer/step/parse_train_config.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt {
namespace {

using testing::GoldenCases;
using testing::GoldenDir;
using testing::GoldenTensor;
using testing::HeldRows;
using testing::IsOk;
using testing::WholeState;
using namespace trainer;  // NOLINT(google-build-using-namespace)

constexpr std::string_view kGroup = "fsdp_dtensor";
constexpr std::uint64_t kBudgetBytes = 64 << 20;

// Relative, of a loss and a gradient norm against Megatron's, and of any mesh against one rank. All
// compute in bf16, in another order; what is seen is at most half of it.
constexpr double kLossTolerance = 3e-4;
constexpr double kNormTolerance = 5e-3;
constexpr double kMeshTolerance = 1e-4;

// --- what Megatron recorded ----------------------------------------------------------------------

struct RecordedStep {
  std::vector<std::vector<std::int64_t>> sequences;  // inputs, and behind the last one its label
  double loss = 0;
  double grad_norm = 0;
  double lr_after = 0;
};

struct RecordedRun {
  std::vector<RecordedStep> steps;
  bool is_target = true;  // a right trainer does the same
};

Result<RecordedStep> ReadStep(const JsonCursor& json) {
  const auto number = [&](const char* key) -> Result<double> {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor value, json.At(key));
    return value.Double();
  };
  RecordedStep step;
  CKPT_ASSIGN_OR_RETURN(const JsonCursor tokens, json.At("tokens"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> sequences, tokens.Items());
  for (const JsonCursor& sequence : sequences) {
    CKPT_ASSIGN_OR_RETURN(step.sequences.emplace_back(), sequence.Int64Array());
  }
  CKPT_ASSIGN_OR_RETURN(step.loss, number("lm_loss"));
  CKPT_ASSIGN_OR_RETURN(step.grad_norm, number("grad_norm"));
  CKPT_ASSIGN_OR_RETURN(step.lr_after, number("lr_after"));
  return step;
}

Result<RecordedRun> ReadRun(const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(PosixStorage(), path, kBudgetBytes));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(text, "expected.json"));
  RecordedRun run;
  CKPT_ASSIGN_OR_RETURN(const JsonCursor continuation, json.root().At("continuation"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> steps, continuation.Items());
  for (const JsonCursor& step : steps) {
    CKPT_ASSIGN_OR_RETURN(run.steps.emplace_back(), ReadStep(step));
  }
  CKPT_ASSIGN_OR_RETURN(const JsonCursor notes, json.root().At("notes"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, notes.Items());
  for (const JsonCursor& item : items) {
    CKPT_ASSIGN_OR_RETURN(const std::string note, item.Text());
    if (note.find("not a target") != std::string::npos) run.is_target = false;
  }
  return run;
}

// --- one run of ours -----------------------------------------------------------------------------

struct ContinuationCase {
  const char* name;
  int ranks = 1;
  bool needs_experts = false;
  layout::Configuration settings = {};
};

std::vector<ContinuationCase> Meshes() {
  return {
      {.name = "1 rank"},
      {.name = "FSDP 2", .ranks = 2},
      {.name = "HSDP 2x2", .ranks = 4, .settings = {{"num_distributed_optimizer_instances", 2}}},
      {.name = "HFSDP 2x2",
       .ranks = 4,
       .settings = {{"num_distributed_optimizer_instances", 2},
                    {"outer_dp_sharding_strategy", "optim"}}},
      {.name = "DDP 2", .ranks = 2, .settings = {{"data_parallel_sharding_strategy", "no_shard"}}},
      {.name = "EP 2",
       .ranks = 2,
       .needs_experts = true,
       .settings = {{"expert_model_parallel_size", 2}}},
      {.name = "HSDP 2x4", .ranks = 8, .settings = {{"num_distributed_optimizer_instances", 2}}},
      {.name = "HSDP 2x4, EP 2",
       .ranks = 8,
       .needs_experts = true,
       .settings = {{"num_distributed_optimizer_instances", 2},
                    {"expert_model_parallel_size", 2}}}};
}

Result<TrainConfig> ConfigFor(const ContinuationCase& mesh, const TrainingState& state) {
  CKPT_ASSIGN_OR_RETURN(layout::Configuration settings, RunSettings(state.args));
  settings.erase("train_iters");  // how long the run would have been
  settings.insert(mesh.settings.begin(), mesh.settings.end());
  SettingsReader reader(settings);
  return ParseTrainConfig(reader, mesh.ranks);
}

constexpr const char* kMomentKinds[] = {"exp_avg ", "exp_avg_sq "};

Status Collect(RankTrainer& trainer, WholeState& whole) {
  const auto add = [&](const char* kind, const auto& read) -> Status {
    CKPT_ASSIGN_OR_RETURN(const std::list<HeldRows> held, testing::ReadHeldRows(read));
    for (const HeldRows& rows : held) {
      CKPT_RETURN_IF_ERROR(whole.Add(kind, rows.spec, rows.row_begin, rows.values));
    }
    return OkStatus();
  };
  const auto weights = [&](const auto& place) -> Status {
    CKPT_RETURN_IF_ERROR(trainer.ReadWeights(place));
    return trainer.AwaitReads();
  };
  CKPT_RETURN_IF_ERROR(add("", weights));
  for (int m = 0; m < 2; ++m) {
    const auto moment = [&](const auto& place) -> Status {
      CKPT_RETURN_IF_ERROR(trainer.ReadMoment(m, place));
      return trainer.AwaitReads();
    };
    CKPT_RETURN_IF_ERROR(add(kMomentKinds[m], moment));
  }
  return OkStatus();
}

// Sequence m·D + r of the step is micro-batch m of rank r.
std::vector<HostMicroBatch> BatchesOf(const RecordedStep& step, const HostGroup& world) {
  std::vector<HostMicroBatch> batches;
  const auto ranks = static_cast<std::size_t>(world.size());
  for (auto s = static_cast<std::size_t>(world.rank()); s < step.sequences.size(); s += ranks) {
    const std::vector<std::int64_t>& ids = step.sequences[s];
    HostMicroBatch& batch = batches.emplace_back();
    batch.batch = 1;
    batch.seq = static_cast<std::int64_t>(ids.size()) - 1;
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
      batch.tokens.push_back(static_cast<std::int32_t>(ids[t]));
      batch.labels.push_back(static_cast<std::int32_t>(ids[t + 1]));
    }
  }
  return batches;
}

// Loads the state on every rank, collects it, and trains the recorded steps.
Status GoOn(const TrainConfig& config, const TrainingState& state, const RecordedRun& recorded,
            WholeState& whole, std::vector<StepReport>& reports) {
  return RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
    const std::unique_ptr<Device> device = MakeHostDevice({});
    const std::unique_ptr<Ops> ops = MakeHostOps({.threads = 1});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(train::LoadState(state, *trainer, /*progress=*/nullptr));
    CKPT_RETURN_IF_ERROR(Collect(*trainer, whole));
    for (const RecordedStep& step : recorded.steps) {
      CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer->Step(BatchesOf(step, world)));
      if (world.rank() == 0) reports.push_back(report);
    }
    return OkStatus();
  });
}

// --- comparisons ---------------------------------------------------------------------------------

// Our name of a stored tensor, with what it is of, and which half of the rows it has.
struct OurTensor {
  std::string name;
  int half = -1;  // gate 0, up 1; -1: all
};

OurTensor OurTensorOf(std::string key) {
  OurTensor ours;
  std::string kind;
  if (key.starts_with("optimizer.")) {
    const std::size_t dot = key.rfind('.');
    kind = key.substr(dot + 1) + " ";
    key.resize(dot);
  }
  for (const std::string_view wrapper : {"optimizer.state.", "model.", "module."}) {
    while (key.starts_with(wrapper)) key.erase(0, wrapper.size());
  }
  if (key.ends_with("_w") || key.ends_with("_v")) {
    ours.half = key.ends_with("_w") ? 0 : 1;
    key.resize(key.size() - 2);
  }
  constexpr std::string_view kSequential = "local_experts.";
  if (const std::size_t at = key.find(kSequential); at != std::string::npos) {
    const std::size_t number = at + kSequential.size();
    const std::size_t dot = key.find('.', number);
    key = key.substr(0, at) + key.substr(dot + 1) + key.substr(number, dot - number);
  }
  ours.name = kind + key;
  return ours;
}

// Every stored tensor of model and optimizer, and nothing else, with the bytes that Megatron had in
// memory.
void ExpectEqualsStored(const WholeState& whole,
                        const std::map<std::string, GoldenTensor>& stored) {
  std::set<std::string> used;
  for (const auto& [key, tensor] : stored) {
    if (key.starts_with("rng_state")) continue;
    const OurTensor ours = OurTensorOf(key);
    std::span<const float> values = whole.Find(ours.name);
    ASSERT_FALSE(values.empty()) << key << " is not loaded as " << ours.name;
    if (ours.half >= 0) {
      values = values.subspan(static_cast<std::size_t>(ours.half) * values.size() / 2,
                              values.size() / 2);
    }
    EXPECT_EQ(HashHex(HashAlgorithm::kSha256, std::as_bytes(values)), tensor.sha256) << key;
    used.insert(ours.name);
  }
  EXPECT_EQ(used, whole.Names());
}

double WorstDifference(const std::vector<StepReport>& reports, double StepReport::*field,
                       const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(reports[i].*field - expected[i]) / expected[i]);
  }
  return worst;
}

template <typename T>
std::vector<double> Column(const std::vector<T>& rows, double T::*field) {
  std::vector<double> column;
  column.reserve(rows.size());
  for (const T& row : rows) column.push_back(row.*field);
  return column;
}

void ExpectRates(const TrainConfig& config, const std::vector<StepReport>& reports,
                 const RecordedRun& recorded) {
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const double lr_after = recorded.steps[i].lr_after;
    EXPECT_DOUBLE_EQ(LearningRate(config.schedule, reports[i].step + 1), lr_after);
    if (i + 1 < reports.size()) {
      EXPECT_DOUBLE_EQ(reports[i + 1].lr, lr_after);
    }
  }
}

class MegatronContinuationTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MegatronContinuationTest, LoadsEveryBitAndFollowsTheLossesOnEveryMesh) {
  const testing::GoldenCase golden = testing::LoadGolden(std::string(kGroup), GetParam());
  const auto state = OpenTrainingState(PosixStorage(), golden.path, {});
  ASSERT_THAT(state, IsOk());
  const auto recorded = ReadRun(golden.directory / "expected.json");
  ASSERT_THAT(recorded, IsOk());
  ASSERT_EQ(recorded->steps.size(), 4U);

  std::vector<StepReport> on_one_rank;
  for (const ContinuationCase& mesh : Meshes()) {
    SCOPED_TRACE(mesh.name);
    if (mesh.needs_experts && !state->weights.config.contains("num_experts_per_tok")) continue;
    const auto config = ConfigFor(mesh, *state);
    ASSERT_THAT(config, IsOk());
    WholeState whole;
    std::vector<StepReport> reports;
    ASSERT_THAT(GoOn(*config, *state, *recorded, whole, reports), IsOk());
    ExpectEqualsStored(whole, golden.tensors);
    ASSERT_EQ(reports.size(), recorded->steps.size());
    ExpectRates(*config, reports, *recorded);
    EXPECT_EQ(reports.front().step, state->run.finished_updates() + 1);

    if (on_one_rank.empty()) on_one_rank = reports;
    const double apart =
        WorstDifference(reports, &StepReport::loss, Column(on_one_rank, &StepReport::loss));
    EXPECT_LE(apart, kMeshTolerance);
    const double loss =
        WorstDifference(reports, &StepReport::loss, Column(recorded->steps, &RecordedStep::loss));
    const double norm = WorstDifference(reports, &StepReport::grad_norm,
                                        Column(recorded->steps, &RecordedStep::grad_norm));
    // The first loss is of the weights as they were stored: right whatever becomes of the
    // gradients.
    const double first_loss = recorded->steps.front().loss;
    EXPECT_NEAR(reports.front().loss, first_loss, kLossTolerance * first_loss);
    if (recorded->is_target) {
      EXPECT_LE(loss, kLossTolerance);
      EXPECT_LE(norm, kNormTolerance);
    }
    std::cout << fmt::format("{:28} {:15} loss {:.1e}  norm {:.1e}  from one rank {:.1e}{}\n",
                             GetParam(), mesh.name, loss, norm, apart,
                             recorded->is_target ? "" : "  (no target)");
  }
}

// Those of Megatron's own trainer; `fully_shard` cases hold another model and no arguments.
std::vector<std::string> MegatronCases() {
  std::vector<std::string> cases = GoldenCases(std::string(kGroup));
  std::erase_if(cases, [](const std::string& name) { return name.starts_with("fully_shard"); });
  return cases;
}

TEST(MegatronContinuation, HasACaseWithExpertsAndOneWithout) {
  EXPECT_GE(MegatronCases().size(), 2U);
}

// What four steps of a small model cannot show: each of these changes a loss by less than bf16
// does.
TEST(MegatronContinuation, TakesOverTheSettingsOfTheRun) {
  const Path path = GoldenDir() / std::string(kGroup) / "moe_ep2_fsdp4" / "ckpt";
  const auto state = OpenTrainingState(PosixStorage(), path, {});
  ASSERT_THAT(state, IsOk());
  const auto config = ConfigFor(Meshes().front(), *state);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->precision.compute, DType::kBfloat16);
  EXPECT_EQ(config->optimizer.weight_decay, 0.1);
  EXPECT_EQ(config->optimizer.adam_beta2, 0.999);
  EXPECT_EQ(config->clip_grad, 1);
  EXPECT_EQ(config->schedule.warmup_steps, 2);
  EXPECT_EQ(config->schedule.decay_steps, 12);
  EXPECT_EQ(config->global_batch_size, 8);
  EXPECT_EQ(config->seq_length, 32);
  EXPECT_FALSE(config->per_token_loss);
  const MoeConfig& moe = config->model.moe.value();
  EXPECT_EQ(moe.router.score, ScoreFunction::kSigmoid);
  EXPECT_EQ(moe.router.topk, 2);
  EXPECT_TRUE(moe.router.normalize);
  EXPECT_EQ(moe.aux.kind, AuxLoss::kBatch);
  EXPECT_EQ(moe.aux.coefficient, 1e-2);
  EXPECT_TRUE(moe.expert_bias);
  EXPECT_EQ(moe.bias_update_rate, 1e-2);
  EXPECT_EQ(moe.shared_expert_ffn_hidden_size, 20);
}

INSTANTIATE_TEST_SUITE_P(Golden, MegatronContinuationTest, ::testing::ValuesIn(MegatronCases()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ckpt
