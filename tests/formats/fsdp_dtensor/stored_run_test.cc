#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "formats/dcp/source.h"
#include "formats/fsdp_dtensor/internal/read_run.h"
#include "formats/fsdp_dtensor/internal/run_objects.h"
#include "formats/pickle/object_json.h"
#include "formats/pickle/reader.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/stated_source.h"

namespace ckpt::fsdp_dtensor {
namespace {

using testing::FailsWith;
using testing::GoldenDir;
using testing::IsOk;

constexpr std::string_view kGroupMeta = "optimizer.param_to_group_meta.module.module.module.";

// Runs of Megatron-LM; the others are a toy module's, saved without a run.
std::vector<std::string> MegatronCases() {
  std::vector<std::string> names = testing::GoldenCases("fsdp_dtensor");
  std::erase_if(names, [](const std::string& name) { return name.starts_with("fully_shard"); });
  return names;
}

// Type and JSON of every object.
using Objects = std::map<std::string, std::pair<std::string, std::string>>;

class MegatronRunTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Path root = GoldenDir() / "fsdp_dtensor" / GetParam() / "ckpt";
    auto source = dcp::Source::Open(PosixStorage(), root / "iter_0000003");
    ASSERT_THAT(source, IsOk());
    source_ = *std::move(source);
    for (const ObjectEntry& object : source_->index().objects()) {
      const auto rendered = source_->ReadObject(object);
      ASSERT_THAT(rendered, IsOk());
      objects_[object.key] = {rendered->type, rendered->json};
    }
  }

  [[nodiscard]] JsonDocument Json(const std::string& key) const {
    return JsonDocument::Parse(objects_.at(key).second, key).value();
  }
  [[nodiscard]] double Float(const std::string& key) const {
    return Json(key).root().Double().value();
  }
  [[nodiscard]] std::int64_t Int(const std::string& key) const {
    return Json(key).root().Int64().value();
  }
  [[nodiscard]] std::string Text(const std::string& key) const {
    return Json(key).root().Text().value();
  }

  [[nodiscard]] ParamGroup GroupOf(const std::string& parameter) const {
    const std::string prefix = std::string(kGroupMeta) + parameter + ".";
    const JsonDocument pair = Json(prefix + "betas");
    const auto betas = pair.root().At("$tuple").value().Items().value();
    return {.is_expert_parallel = Json(prefix + "is_expert_parallel").root().Bool().value(),
            .wd_mult = Float(prefix + "wd_mult"),
            .lr_mult = Float(prefix + "lr_mult"),
            .max_lr = Float(prefix + "max_lr"),
            .min_lr = Float(prefix + "min_lr"),
            .lr = Float(prefix + "lr"),
            .betas = {betas[0].Double().value(), betas[1].Double().value()},
            .eps = Float(prefix + "eps"),
            .weight_decay = Float(prefix + "weight_decay"),
            .step = Int(prefix + "step")};
  }

  // The state of a run of ours that stands where this one stands.
  [[nodiscard]] TrainingRun SameState() const {
    TrainingRun state;
    state.iteration = Int("iteration");
    state.num_floating_point_operations = Float("num_floating_point_operations_so_far");
    const std::string scheduler = "opt_param_scheduler.";
    state.schedule = {.max_lr = Float(scheduler + "max_lr"),
                      .min_lr = Float(scheduler + "min_lr"),
                      .lr_warmup_steps = Int(scheduler + "lr_warmup_steps"),
                      .num_steps = Int(scheduler + "num_steps"),
                      .lr_decay_style = Text(scheduler + "lr_decay_style"),
                      .lr_decay_steps = Int(scheduler + "lr_decay_steps"),
                      .start_wd = Float(scheduler + "start_wd"),
                      .end_wd = Float(scheduler + "end_wd"),
                      .wd_incr_style = Text(scheduler + "wd_incr_style"),
                      .wd_incr_steps = Int(scheduler + "wd_incr_steps")};
    constexpr std::string_view kStep = ".step";
    for (const auto& [key, object] : objects_) {
      if (!key.starts_with(kGroupMeta) || !key.ends_with(kStep)) continue;
      const std::string name =
          key.substr(kGroupMeta.size(), key.size() - kGroupMeta.size() - kStep.size());
      state.group_of.emplace_back(name, state.groups.size());
      state.groups.push_back(GroupOf(name));
    }
    state.seed = 1234;
    state.tensor_ranks = objects_.contains("rng_state.(0, 1).0.np_rng_state") ? 2 : 1;
    return state;
  }

  std::unique_ptr<dcp::Source> source_;
  Objects objects_;
};

TEST_P(MegatronRunTest, HasTheObjectsThatWeWrite) {
  Objects ours;
  for (const PickledEntry& object : RunObjects(SameState())) {
    const auto pickle = pickle::ParsePickle(object.value.pickle, object.key);
    ASSERT_THAT(pickle, IsOk());
    const auto rendered = pickle::RenderObject(pickle->graph, pickle->root, "", object.key);
    ASSERT_THAT(rendered, IsOk());
    const bool is_new = ours.emplace(object.key, std::pair(rendered->type, rendered->json)).second;
    EXPECT_TRUE(is_new) << object.key;
  }
  // What is in the arguments is the run's affair.
  EXPECT_EQ(ours.at("args").first, "Namespace");
  ours["args"] = objects_.at("args");
  EXPECT_EQ(ours, objects_);
}

TEST_P(MegatronRunTest, HasTheTensorsThatWeWrite) {
  using Description = std::tuple<std::string, DType, Dims>;
  std::set<Description> theirs;
  for (const GlobalTensor& tensor : source_->index().tensors()) {
    if (tensor.key.starts_with("model.") || tensor.key.starts_with("optimizer.")) continue;
    theirs.emplace(tensor.key, tensor.dtype, tensor.shape);
  }
  std::set<Description> ours;
  for (const MemoryTensor& tensor : RunTensors(SameState())) {
    ours.emplace(tensor.key, tensor.dtype, tensor.shape);
    EXPECT_EQ(Dims{static_cast<std::int64_t>(tensor.values.size())}, tensor.shape) << tensor.key;
  }
  EXPECT_EQ(ours, theirs);
}

TEST_P(MegatronRunTest, KeepsItsEntriesWhereWeDo) {
  ASSERT_TRUE(source_->extras().planner_data.has_value());
  EXPECT_FALSE(source_->extras().planner_data->empty());
  for (const dcp::PlannerEntry& entry : *source_->extras().planner_data) {
    EXPECT_EQ(RunPath(entry.key), entry.path) << entry.key;
  }
}

TEST_P(MegatronRunTest, NamesWeightsAndMomentsAsWeDo) {
  const std::string prefix = WeightKey("");
  std::size_t weights = 0;
  for (const GlobalTensor& tensor : source_->index().tensors()) {
    if (!tensor.key.starts_with(prefix)) continue;
    const std::string name = tensor.key.substr(prefix.size());
    ++weights;
    if (name.ends_with("expert_bias")) continue;  // not trained
    EXPECT_NE(source_->index().FindTensor(MomentKey(name, "exp_avg_sq")), nullptr) << name;
  }
  EXPECT_GT(weights, 0U);
}

TEST_P(MegatronRunTest, IsReadBack) {
  const auto stored = ReadRun(*source_, RunDetail::kToResume);
  ASSERT_THAT(stored, IsOk());
  const TrainingRun same = SameState();
  const TrainingRun& run = stored->run;
  EXPECT_EQ(run.iteration, same.iteration);
  EXPECT_EQ(run.consumed_samples, 24);
  EXPECT_EQ(run.schedule.num_steps, same.schedule.num_steps);
  EXPECT_EQ(run.seed, same.seed);
  EXPECT_EQ(run.tensor_ranks, same.tensor_ranks);
  ASSERT_EQ(run.group_of.size(), same.group_of.size());
  for (std::size_t p = 0; p < run.group_of.size(); ++p) {
    EXPECT_EQ(run.group_of[p].first, same.group_of[p].first);
    EXPECT_EQ(run.groups.at(run.group_of[p].second).step,
              same.groups.at(same.group_of[p].second).step);
  }
  ASSERT_EQ(stored->moments.size(), 2U);
  for (const StoredMoment& moment : stored->moments) {
    for (const auto& [key, weight] : moment.weight_of) {
      EXPECT_EQ(key, MomentKey(weight, moment.name));
      EXPECT_NE(source_->index().FindTensor(WeightKey(weight)), nullptr) << weight;
    }
  }
}

// All settings, as they are written again.
TEST_P(MegatronRunTest, IsReadBackWhole) {
  const auto stored = ReadRun(*source_, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  const TrainingRun same = SameState();
  EXPECT_EQ(stored->run.schedule, same.schedule);
  EXPECT_EQ(stored->run.num_floating_point_operations, same.num_floating_point_operations);
  for (std::size_t p = 0; p < same.group_of.size(); ++p) {
    EXPECT_EQ(stored->run.groups.at(stored->run.group_of[p].second),
              same.groups.at(same.group_of[p].second))
        << same.group_of[p].first;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, MegatronRunTest, ::testing::ValuesIn(MegatronCases()),
                         [](const auto& test) { return test.param; });

// Megatron had drawn nothing from these before it saved.
TEST(RunTensors, AreThoseOfAFreshRunOfTheSameSeed) {
  const testing::GoldenCase golden = testing::LoadGolden("fsdp_dtensor", "dense_fsdp2");
  std::size_t compared = 0;
  for (const MemoryTensor& tensor : RunTensors({.seed = 1234})) {
    if (tensor.key.ends_with("model-parallel-rng")) continue;
    ++compared;
    EXPECT_EQ(HashHex(HashAlgorithm::kSha256, tensor.values), golden.tensors.at(tensor.key).sha256)
        << tensor.key;
  }
  EXPECT_EQ(compared, 4U);
}

TEST(RunPath, LeavesAKeyThatMegatronDoesNotHaveWhole) {
  for (const std::string key : {"rng_state.0", "rng_state.(0, 0).x.np_rng_state", "other.key"}) {
    EXPECT_THAT(RunPath(key), ::testing::ElementsAre(PathStep(key)));
  }
}

TEST(ReadArgsTest, RefusesAGateThatSeveralTensorRanksStored) {
  const auto read = [](const std::string& members) {
    return ReadArgs(
        testing::StatedSource({}, {{"args", "{\"$object\": {\"state\": {" + members + "}}}"}}));
  };
  EXPECT_THAT(read(R"("quick_geglu": true, "tensor_model_parallel_size": 1)"), IsOk());
  EXPECT_THAT(read(R"("quick_geglu": false, "tensor_model_parallel_size": 2)"), IsOk());
  for (const char* name : {"tensor_model_parallel_size", "expert_tensor_parallel_size"}) {
    const auto args = read(fmt::format(R"("quick_geglu": true, "{}": 2)", name));
    ASSERT_THAT(args, FailsWith(ErrorKind::kUnsupported));
    EXPECT_THAT(args.status().first().message, ::testing::HasSubstr(name));
  }
}

// Without momentum SGD keeps nothing, and its groups say that it is no Adam.
TEST(ReadRunTest, KnowsSgdByItsGroups) {
  const auto read = [](const std::string& momentum, std::vector<MemoryTensor> tensors = {}) {
    testing::StatedObjects objects = {
        {"args", R"({"$object": {"state": {"consumed_train_samples": 8}}})"},
        {"iteration", "2"},
        {"opt_param_scheduler.num_steps", "8"},
        {"opt_param_scheduler.max_lr", "0.5"},
        {"opt_param_scheduler.min_lr", "0.0"},
        {"opt_param_scheduler.lr_warmup_steps", "0"},
        {"opt_param_scheduler.lr_decay_steps", "8"},
        {"opt_param_scheduler.lr_decay_style", R"("constant")"}};
    for (const auto& [name, json] : testing::StatedObjects{{"step", "2"},
                                                           {"lr", "0.5"},
                                                           {"momentum", momentum},
                                                           {"dampening", "0.0"},
                                                           {"nesterov", "false"}}) {
      objects[fmt::format("{}w.{}", kGroupMeta, name)] = json;
    }
    return ReadRun(testing::StatedSource(std::move(tensors), objects), RunDetail::kToResume);
  };
  const auto stored = read("0.0");
  ASSERT_THAT(stored, IsOk());
  EXPECT_TRUE(stored->run.uses_sgd());
  EXPECT_EQ(stored->run.group_of.size(), 1U);
  EXPECT_TRUE(stored->moments.empty());
  EXPECT_THAT(read("0.9"), FailsWith(ErrorKind::kMissing));
  const auto kept = read("0.9", {{.key = MomentKey("w", "momentum_buffer"),
                                  .dtype = DType::kFloat32,
                                  .shape = {2},
                                  .values = Bytes(8)}});
  ASSERT_THAT(kept, IsOk());
  EXPECT_EQ(kept->moments.size(), 1U);
}

// Transformer Engine's optimizer divides those of few bits, and Megatron-FSDP stores no factor.
TEST(CheckNeedNoFactorTest, RefusesMomentsWithoutTheirFactor) {
  const auto find = [](DType dtype) {
    IndexBuilder builder;
    const FileId file = builder.AddFile("__0_0.distcp");
    const EncodingId raw = builder.AddEncoding("raw");
    builder.AddTensor("optimizer.state.module.module.module.w.exp_avg", dtype, {2});
    builder.AddChunk(WholeBox(Dims{2}), file, raw, 0, 2 * ElementBytes(dtype));
    const CheckpointIndex index = builder.Build().value();
    return CheckNeedNoFactor(index, FindTensors(index).value());
  };
  EXPECT_THAT(find(DType::kFloat32), IsOk());
  EXPECT_THAT(find(DType::kBfloat16), IsOk());
  for (const DType dtype : {DType::kFloat16, DType::kFloat8E4m3fn, DType::kUint8}) {
    EXPECT_THAT(find(dtype), FailsWith(ErrorKind::kUnsupported)) << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace ckpt::fsdp_dtensor
