// Optimizers under keys and with values that say anything.
#include "formats/fsdp2/internal/read_run.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/io/posix_storage.h"
#include "core/training/run_format.h"
#include "formats/dcp/source.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/stated_source.h"

namespace ckpt::fsdp2 {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using ::testing::Pair;
using testing::StatedObjects;
using testing::StatedSource;

MemoryTensor Number(const std::string& key, float value) {
  MemoryTensor tensor{.key = key, .dtype = DType::kFloat32, .shape = {}, .values = Bytes(4)};
  std::memcpy(tensor.values.data(), &value, sizeof(value));
  return tensor;
}
MemoryTensor Vector(const std::string& key) {
  return {.key = key, .dtype = DType::kFloat32, .shape = {2}, .values = Bytes(8)};
}

std::vector<MemoryTensor> Adam(const std::string& prefix = "optim.", float step = 3) {
  return {Vector("model.w"), Number(prefix + "state.w.step", step),
          Vector(prefix + "state.w.exp_avg"), Vector(prefix + "state.w.exp_avg_sq")};
}
StatedObjects Group(const std::string& prefix = "optim.") {
  return {{prefix + "param_groups.0.lr", "0.5"},
          {prefix + "param_groups.0.initial_lr", "0.75"},
          {prefix + "param_groups.0.betas", R"({"$tuple": [0.8, 0.9]})"},
          {prefix + "param_groups.0.amsgrad", "false"},
          {prefix + "param_groups.0.weight_decay", "0.1"},
          {prefix + "param_groups.0.params", R"(["w"])"}};
}

TEST(ReadRunTest, ReadsARunOfAnotherProgram) {
  for (const char* prefix : {"optim.", "optimizer.", "app.optim.", ""}) {
    const StatedSource source(Adam(prefix), Group(prefix));
    ASSERT_TRUE(HoldsRun(source.index())) << prefix;
    const auto stored = ReadRun(source, RunDetail::kToResume);
    ASSERT_THAT(stored, IsOk()) << prefix;
    const TrainingRun& run = stored->run;
    EXPECT_EQ(run.finished_updates(), 3);
    EXPECT_EQ(run.iteration, 3);
    EXPECT_THAT(run.group_of, ElementsAre(Pair("w", 0)));
    ASSERT_EQ(run.groups.size(), 1U);
    EXPECT_EQ(run.groups[0].betas, (std::array<double, 2>{0.8, 0.9}));
    EXPECT_EQ(run.groups[0].lr, 0.5);
    EXPECT_EQ(run.groups[0].max_lr, 0.75);
    ASSERT_EQ(stored->moments.size(), 2U);
    EXPECT_THAT(stored->moments[1].weight_of,
                ElementsAre(Pair(std::string(prefix) + "state.w.exp_avg_sq", "w")));
    EXPECT_THAT(stored->decoded_tensors, ElementsAre(std::string(prefix) + "state.w.step"));
  }
}

// Some programs count in Python's own numbers.
TEST(ReadRunTest, ReadsCountsThatAreNoTensors) {
  std::vector<MemoryTensor> tensors = Adam();
  tensors.push_back(Number("optim.state.v.step", 3));
  for (const char* field : {"exp_avg", "exp_avg_sq"}) {
    tensors.push_back(Vector(fmt::format("optim.state.v.{}", field)));
  }
  std::erase_if(tensors, [](const MemoryTensor& t) { return t.key == "optim.state.w.step"; });
  StatedObjects objects = Group();
  objects["optim.param_groups.0.params"] = R"(["v", "w"])";
  for (const char* count : {"3", "3.0"}) {
    objects["optim.state.w.step"] = count;
    const auto stored = ReadRun(StatedSource(tensors, objects), RunDetail::kWhole);
    ASSERT_THAT(stored, IsOk()) << count;
    EXPECT_EQ(stored->run.finished_updates(), 3);
    EXPECT_THAT(stored->decoded_tensors, ElementsAre("optim.state.v.step"));
    EXPECT_EQ(std::ranges::count(stored->decoded, "optim.state.w.step"), 1);
  }
  for (const char* no_count : {"2.5", "-1", R"("3")", "null", "true"}) {
    objects["optim.state.w.step"] = no_count;
    const auto stored = ReadRun(StatedSource(tensors, objects), RunDetail::kWhole);
    ASSERT_THAT(stored, FailsWith(ErrorKind::kBadMetadata)) << no_count;
    EXPECT_EQ(stored.status().first().tensor, "optim.state.w.step");
  }
  const std::map<std::string, std::string> found = {
      {R"("three")", R"(the text "three")"}, {"null", "null"}, {"[3]", "array"}};
  for (const auto& [no_number, actual] : found) {
    objects["optim.state.w.step"] = no_number;
    const auto stored = ReadRun(StatedSource(tensors, objects), RunDetail::kWhole);
    ASSERT_THAT(stored, FailsWith(ErrorKind::kBadMetadata)) << no_number;
    const Problem& problem = stored.status().first();
    EXPECT_EQ(problem.message, "how often a parameter was updated is no number");
    EXPECT_EQ(problem.tensor, "optim.state.w.step");
    EXPECT_EQ(problem.expected, "a number");
    EXPECT_EQ(problem.actual, actual);
  }
  objects["optim.state.w.step"] = R"({"$tuple":[3]})";
  EXPECT_THAT(ReadRun(StatedSource(tensors, objects), RunDetail::kWhole),
              FailsWith(ErrorKind::kUnsupported));
  objects["optim.state.w.step"] =
      R"({"$numpy_scalar": {"dtype": "<i8", "bytes": "0300000000000000"}})";
  EXPECT_THAT(ReadRun(StatedSource(tensors, objects), RunDetail::kWhole), IsOk());
}

// What its scheduler will do, the checkpoint does not say.
TEST(ReadRunTest, WarnsOfARateThatASchedulerChanged) {
  const StatedSource changed(Adam(), Group());
  for (const RunDetail detail : {RunDetail::kWhole, RunDetail::kToResume}) {
    const auto stored = ReadRun(changed, detail);
    ASSERT_THAT(stored, IsOk());
    ASSERT_EQ(stored->warnings.size(), 1U);
    EXPECT_THAT(stored->warnings[0].message, HasSubstr("from 0.75 to 0.5"));
  }
}

TEST(ReadRunTest, ReadsSettingsUnderEveryName) {
  std::vector<MemoryTensor> tensors = Adam();
  for (MemoryTensor& tensor : Adam()) {
    if (tensor.key == "model.w") continue;
    tensor.key.replace(tensor.key.find(".w."), 3, ".v.");
    tensors.push_back(std::move(tensor));
  }
  const StatedSource source(tensors, {{"optim.param_groups.w.lr", "0.5"},
                                      {"optim.param_groups.w.amsgrad", "false"},
                                      {"optim.param_groups.v.amsgrad", "false"},
                                      {"optim.param_groups.w.weight_decay", "0.1"},
                                      {"optim.param_groups.v.lr", "0.5"},
                                      {"optim.param_groups.v.weight_decay", "0.0"}});
  const auto stored = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  // What decays is the first group.
  EXPECT_THAT(stored->run.group_of, ElementsAre(Pair("v", 1), Pair("w", 0)));
  ASSERT_EQ(stored->run.groups.size(), 2U);
  EXPECT_EQ(stored->run.groups[0].wd_mult, 1);
  EXPECT_EQ(stored->run.groups[1].wd_mult, 0);
}

TEST(ReadRunTest, TellsFrozenParametersFromTrainedOnes) {
  StatedObjects objects = Group();
  objects["optim.param_groups.0.params"] = R"(["f", "w"])";
  const auto stored = ReadRun(StatedSource(Adam(), objects), RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_THAT(stored->run.group_of, ElementsAre(Pair("w", 0)));
  EXPECT_THAT(stored->run.frozen_of, ElementsAre(Pair("f", 0)));
}

// A rate that a captured graph reads.
TEST(ReadRunTest, ReadsARateThatIsATensor) {
  std::vector<MemoryTensor> tensors = Adam();
  tensors.push_back(Number("optim.param_groups.0.lr", 0.25));
  StatedObjects objects = Group();
  objects.erase("optim.param_groups.0.lr");
  objects.erase("optim.param_groups.0.initial_lr");
  const auto stored = ReadRun(StatedSource(tensors, objects), RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.groups[0].lr, 0.25);
  // The run has a number, and says so.
  ASSERT_FALSE(stored->assumptions.empty());
  EXPECT_THAT(stored->assumptions[0].message, HasSubstr("become plain numbers"));
  EXPECT_EQ(stored->assumptions[0].tensor, "optim.param_groups.0.lr");
}

TEST(ReadRunTest, ReadsAnySettingThatIsATensor) {
  std::vector<MemoryTensor> tensors = Adam();
  tensors.push_back(Number("optim.param_groups.0.weight_decay", 0.25));
  StatedObjects objects = Group();
  objects.erase("optim.param_groups.0.weight_decay");
  const auto stored = ReadRun(StatedSource(tensors, objects), RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.groups[0].weight_decay, 0.25);
}

// The same with values of tensors that an object of it holds.
class WithNumbers final : public CheckpointSource {
 public:
  // REQUIRES: `source` outlives this.
  WithNumbers(const CheckpointSource& source, HeldNumbers numbers)
      : source_(source), numbers_(std::move(numbers)) {}

  [[nodiscard]] const CheckpointIndex& index() const override { return source_.index(); }
  [[nodiscard]] Result<StoredArray> Locate(const GlobalTensor& tensor,
                                           const Chunk& chunk) const override {
    return source_.Locate(tensor, chunk);
  }
  [[nodiscard]] Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    CKPT_ASSIGN_OR_RETURN(RenderedObject rendered, source_.ReadObject(object));
    rendered.numbers = numbers_;
    return rendered;
  }
  [[nodiscard]] Result<std::uint64_t> FileSize(FileId file) const override {
    return source_.FileSize(file);
  }
  [[nodiscard]] Protection protection() const override { return source_.protection(); }

 private:
  const CheckpointSource& source_;
  const HeldNumbers numbers_;
};

// Betas become no entries of their own, as tensors in a tuple.
TEST(ReadRunTest, ReadsAPairOfTensorsAndSaysSo) {
  StatedObjects objects = Group();
  objects["optim.param_groups.0.betas"] =
      R"({"$tuple": [{"$tensor": {"shape": [], "dtype": "float32", "sha256": "ab"}}, )"
      R"({"$tensor": {"shape": [], "dtype": "float32", "sha256": "cd"}}]})";
  const StatedSource source(Adam(), objects);
  const WithNumbers held(source, {{{DType::kFloat32, "ab"}, 0.75}, {{DType::kFloat32, "cd"}, 0.5}});
  const auto stored = ReadRun(held, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.groups[0].betas, (std::array<double, 2>{0.75, 0.5}));
  ASSERT_FALSE(stored->assumptions.empty());
  EXPECT_THAT(stored->assumptions[0].message, HasSubstr("settings of the optimizer are tensors"));
  EXPECT_EQ(stored->assumptions[0].tensor, "optim.param_groups.0.betas");
  const auto unknown = ReadRun(source, RunDetail::kWhole);
  ASSERT_THAT(unknown, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(unknown.status().first().tensor, "optim.param_groups.0.betas");
  EXPECT_THAT(unknown.status().first().actual, HasSubstr("torch.Tensor"));
}

// A schedule that numpy computes leaves a rate of numpy's, a program that reads JSON a list.
TEST(ReadRunTest, ReadsNumbersOfNumpyAndAList) {
  StatedObjects objects = Group();
  objects["optim.param_groups.0.lr"] =
      R"({"$numpy_scalar": {"dtype": "<f8", "bytes": "000000000000d03f"}})";
  objects["optim.param_groups.0.betas"] = "[0.75, 0.5]";
  const auto stored = ReadRun(StatedSource(Adam(), objects), RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.groups[0].lr, 0.25);
  EXPECT_EQ(stored->run.groups[0].betas, (std::array<double, 2>{0.75, 0.5}));
  for (const Problem& assumption : stored->assumptions) {
    EXPECT_THAT(assumption.message, Not(HasSubstr("are tensors")));
  }
}

// What its optimizer and its schedule know alone goes along, what every group says does not.
TEST(ReadRunTest, KeepsWhatElseAGroupSays) {
  StatedObjects objects = Group();
  for (const char* name : {"maximize", "capturable", "differentiable"}) {
    objects[fmt::format("optim.param_groups.0.{}", name)] = "false";
  }
  objects["optim.param_groups.0.foreach"] = "null";
  objects["optim.param_groups.0.fused"] = "true";
  objects["optim.param_groups.0.lr_scale"] = "0.5";
  objects["optim.param_groups.0.name"] = R"("decayed")";
  objects["optim.param_groups.0.tags"] = R"([1, "a"])";
  const auto stored = ReadRun(StatedSource(Adam(), objects), RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_THAT(stored->run.groups[0].others,
              ElementsAre(Pair("fused", layout::Value(true)), Pair("lr_scale", layout::Value(0.5)),
                          Pair("name", layout::Value("decayed")),
                          Pair("tags", layout::Value(layout::Value::List{1, "a"}))));
}

// Megatron's schedule sets the decay of a group to the run's, times the group's factor.
TEST(ReadRunTest, GivesMegatronTheSameDecay) {
  std::vector<MemoryTensor> tensors = Adam();
  for (const char* field : {"exp_avg", "exp_avg_sq"}) {
    tensors.push_back(Vector(fmt::format("optim.state.v.{}", field)));
  }
  tensors.push_back(Number("optim.state.v.step", 3));
  StatedObjects objects = Group();
  objects["optim.param_groups.1.amsgrad"] = "false";
  objects["optim.param_groups.1.weight_decay"] = "0.05";
  objects["optim.param_groups.1.params"] = R"(["v"])";
  const auto stored = ReadRun(StatedSource(tensors, objects), RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  const TrainingRun& run = stored->run;
  EXPECT_EQ(run.schedule.start_wd, 0.1);
  EXPECT_EQ(run.schedule.end_wd, 0.1);
  EXPECT_EQ(run.groups[0].wd_mult, 1);
  EXPECT_EQ(run.groups[1].wd_mult, 0.5);
}

TEST(ReadRunTest, SaysWhatItTakesForGranted) {
  const auto silent = ReadRun(StatedSource(Adam(), Group()), RunDetail::kWhole);
  ASSERT_THAT(silent, IsOk());
  ASSERT_EQ(silent->assumptions.size(), 1U);
  EXPECT_THAT(silent->assumptions[0].message, HasSubstr("weight decay is decoupled"));
  StatedObjects objects = Group();
  objects["optim.param_groups.0.decoupled_weight_decay"] = "false";
  const auto said = ReadRun(StatedSource(Adam(), objects), RunDetail::kWhole);
  ASSERT_THAT(said, IsOk());
  EXPECT_TRUE(said->assumptions.empty());
  EXPECT_EQ(*FindArg(said->run, "decoupled_weight_decay"), layout::Value(false));
}

// At its first step, or at its peak, it has not changed the rate.
TEST(ReadRunTest, WarnsOfASchedulerAtTheFirstRate) {
  StatedObjects objects = Group();
  objects["optim.param_groups.0.lr"] = "0.75";
  const auto stored = ReadRun(StatedSource(Adam(), objects), RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  ASSERT_EQ(stored->warnings.size(), 1U);
  EXPECT_THAT(stored->warnings[0].message, HasSubstr("the learning rate has a scheduler"));
  objects.erase("optim.param_groups.0.initial_lr");
  const auto without = ReadRun(StatedSource(Adam(), objects), RunDetail::kWhole);
  ASSERT_THAT(without, IsOk());
  EXPECT_TRUE(without->warnings.empty());
}

TEST(ReadRunTest, HoldsNoneWhereParametersHaveNoNames) {
  EXPECT_FALSE(HoldsRun(
      StatedSource({Vector("model.w"), Vector("optim.state.0.exp_avg")}, Group()).index()));
  EXPECT_FALSE(HoldsRun(StatedSource({Vector("model.w")}, Group()).index()));
}

StatedObjects GroupOfSgd(const std::string& owner, const std::string& momentum = "0.0") {
  StatedObjects objects;
  for (const auto& [field, json] : StatedObjects{{"lr", "0.5"},
                                                 {"momentum", momentum},
                                                 {"dampening", "0.0"},
                                                 {"nesterov", "false"},
                                                 {"weight_decay", "0.1"}}) {
    objects[fmt::format("optim.param_groups.{}.{}", owner, field)] = json;
  }
  objects["run.finished_updates"] = "3";
  return objects;
}

// Without momentum SGD keeps nothing at all.
TEST(ReadRunTest, KnowsSgdByTheNamesInItsGroups) {
  StatedObjects nested = GroupOfSgd("0");
  nested["optim.param_groups.0.params"] = R"(["w"])";
  nested["optim.state"] = "{}";
  for (const StatedObjects& objects : {nested, GroupOfSgd("w")}) {
    const StatedSource source({Vector("model.w")}, objects);
    EXPECT_FALSE(HoldsRun(source.index()));
    EXPECT_TRUE(HasKeysOf(source.index()));
    EXPECT_TRUE(HoldsGroups(source));
    const auto stored = ReadRun(source, RunDetail::kWhole);
    ASSERT_THAT(stored, IsOk());
    EXPECT_TRUE(stored->run.uses_sgd());
    EXPECT_EQ(stored->run.finished_updates(), 3);
    EXPECT_THAT(stored->run.group_of, ElementsAre(Pair("w", 0)));
    EXPECT_TRUE(stored->moments.empty());
    const bool has_place = objects.contains("optim.state");
    EXPECT_EQ(std::ranges::count(stored->decoded, "optim.state"), has_place ? 1 : 0);
  }
}

TEST(ReadRunTest, WhatIsInAPlaceOfTheStateIsNotOverlooked) {
  StatedObjects objects = GroupOfSgd("w");
  objects["optim.state"] = R"({"w": 1})";
  const auto stored = ReadRun(StatedSource({Vector("model.w")}, objects), RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(std::ranges::count(stored->decoded, "optim.state"), 0);
}

// An optimizer's own state_dict().
TEST(ReadRunTest, HoldsNoneOfSgdWhereParametersHaveNoNames) {
  for (const char* params : {"[0, 1]", R"(["0", "1"])", "[]"}) {
    StatedObjects objects = GroupOfSgd("0");
    objects["optim.param_groups.0.params"] = params;
    EXPECT_FALSE(HoldsGroups(StatedSource({Vector("model.w")}, objects))) << params;
  }
  EXPECT_FALSE(HoldsGroups(StatedSource({Vector("model.w")}, Group())));
}

TEST(ReadRunTest, RefusesAMomentumThatIsNotThere) {
  const auto absent =
      ReadRun(StatedSource({Vector("model.w")}, GroupOfSgd("w", "0.9")), RunDetail::kWhole);
  ASSERT_THAT(absent, FailsWith(ErrorKind::kMissing));
  EXPECT_EQ(absent.status().first().expected, "momentum_buffer");
  // One parameter's: the other may be frozen, or have no momentum.
  StatedObjects objects = GroupOfSgd("w", "0.9");
  objects.merge(GroupOfSgd("v"));
  const auto partly =
      ReadRun(StatedSource({Vector("model.w"), Vector("optim.state.w.momentum_buffer")}, objects),
              RunDetail::kWhole);
  ASSERT_THAT(partly, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(partly.status().first().hint, kTakeWeightsAlone);
}

// What torch 2.4.1 saved: two groups, a scheduler, two updates on two ranks.
TEST(ReadRunTest, ReadsWhatTorchSaved) {
  const auto source =
      dcp::OpenSource(PosixStorage(), testing::GoldenDir() / "dcp" / "tp_adamw_t24" / "ckpt");
  ASSERT_THAT(source, IsOk());
  ASSERT_TRUE(HoldsRun((*source)->index()));
  const auto stored = ReadRun(**source, RunDetail::kWhole);
  ASSERT_THAT(stored, IsOk());
  const TrainingRun& run = stored->run;
  EXPECT_EQ(run.finished_updates(), 2);
  ASSERT_EQ(run.groups.size(), 2U);
  EXPECT_EQ(run.groups[0].weight_decay, 0.1);
  EXPECT_EQ(run.groups[0].max_lr, 0.003);
  EXPECT_EQ(run.groups[0].lr, 0.0027135254915624215);
  EXPECT_EQ(run.groups[1].wd_mult, 0);
  ASSERT_EQ(stored->moments.size(), 2U);
  EXPECT_EQ(stored->moments[0].weight_of.size(), run.group_of.size());
  EXPECT_EQ(stored->decoded_tensors.size(), run.group_of.size());
}

// SGD counts no updates, and of another program's run nothing else does.
TEST(ReadRunTest, ARunOfSgdThatNobodyCountedBeginsAtZero) {
  const std::vector<MemoryTensor> tensors = {Vector("model.w"),
                                             Vector("optim.state.w.momentum_buffer")};
  for (const char* momentum : {"0.0", "0.9"}) {
    StatedObjects uncounted = GroupOfSgd("w", momentum);
    uncounted.erase("run.finished_updates");
    const bool keeps = momentum == std::string_view("0.9");
    const auto stored =
        ReadRun(StatedSource(keeps ? tensors : std::vector{Vector("model.w")}, uncounted),
                RunDetail::kWhole);
    ASSERT_THAT(stored, IsOk()) << momentum;
    EXPECT_EQ(stored->run.finished_updates(), 0);
    EXPECT_EQ(stored->run.iteration, 0);
    ASSERT_FALSE(stored->assumptions.empty());
    EXPECT_THAT(stored->assumptions.front().message, HasSubstr("how often the optimizer"));
  }
}

// Of Adam's first update little is left after the second; a momentum may have been lost.
TEST(ReadRunTest, AnotherRunThatNobodyCountedIsRefused) {
  const std::vector<MemoryTensor> tensors = {Vector("model.w"),
                                             Vector("optim.state.w.momentum_buffer")};
  const auto stored = ReadRun(StatedSource(tensors, Group()), RunDetail::kWhole);
  ASSERT_THAT(stored, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(stored.status().ToString(), HasSubstr("how often the optimizer has updated"));
  EXPECT_EQ(stored.status().first().hint, kTakeWeightsAlone);
  StatedObjects without = GroupOfSgd("w", "0.9");
  without.erase("run.finished_updates");
  EXPECT_THAT(ReadRun(StatedSource({Vector("model.w")}, without), RunDetail::kWhole),
              FailsWith(ErrorKind::kMissing));
}

// Muon keeps what SGD keeps, by number and flattened.
TEST(ReadRunTest, RefusesAnotherOptimizerThanSgdWithAMomentum) {
  const std::vector<MemoryTensor> tensors = {Vector("model.w"),
                                             Vector("optim.state.w.momentum_buffer")};
  for (const char* owner : {"0", "w"}) {
    const std::string prefix = fmt::format("optim.param_groups.{}.", owner);
    StatedObjects objects = GroupOfSgd(owner, "0.95");
    if (owner == std::string_view("0")) objects[prefix + "params"] = R"(["w"])";
    ASSERT_THAT(ReadRun(StatedSource(tensors, objects), RunDetail::kWhole), IsOk());
    StatedObjects of_torch = objects;
    of_torch[prefix + "ns_steps"] = "5";
    const auto named = ReadRun(StatedSource(tensors, of_torch), RunDetail::kWhole);
    ASSERT_THAT(named, FailsWith(ErrorKind::kUnsupported));
    EXPECT_EQ(named.status().first().tensor, prefix + "ns_steps");
    EXPECT_EQ(named.status().first().hint, kTakeWeightsAlone);
    objects.erase(prefix + "dampening");
    const auto unmarked = ReadRun(StatedSource(tensors, objects), RunDetail::kWhole);
    ASSERT_THAT(unmarked, FailsWith(ErrorKind::kUnsupported));
    EXPECT_EQ(unmarked.status().first().message, "nothing says that the optimizer is SGD");
    EXPECT_EQ(unmarked.status().first().tensor, prefix + "dampening");
  }
}

struct Refused {
  const char* name;
  std::vector<MemoryTensor> more;
  StatedObjects changed;
  ErrorKind kind;
  const char* says;
  std::string without = {};  // a tensor or an object
  float step = 3;
};
void PrintTo(const Refused& refused, std::ostream* os) { *os << refused.name; }

class RefusedRunTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedRunTest, IsAnErrorThatNamesIt) {
  const Refused& refused = GetParam();
  std::vector<MemoryTensor> tensors = Adam("optim.", refused.step);
  tensors.insert(tensors.end(), refused.more.begin(), refused.more.end());
  std::erase_if(tensors, [&](const MemoryTensor& t) { return t.key == refused.without; });
  StatedObjects objects = Group();
  for (const auto& [key, json] : refused.changed) objects[key] = json;
  objects.erase(refused.without);
  const auto stored = ReadRun(StatedSource(tensors, objects), RunDetail::kWhole);
  ASSERT_THAT(stored, FailsWith(refused.kind));
  const Problem& problem = stored.status().first();
  EXPECT_THAT(problem.message + " / " + problem.tensor, HasSubstr(refused.says));
}

INSTANTIATE_TEST_SUITE_P(
    Runs, RefusedRunTest,
    ::testing::Values(
        Refused{"SeveralOptimizers",
                {Vector("optimizer.state.w.exp_avg")},
                {},
                ErrorKind::kUnsupported,
                "several optimizers"},
        Refused{"OtherState",
                {Vector("optim.state.w.max_exp_avg_sq")},
                {},
                ErrorKind::kUnsupported,
                "optim.state.w.max_exp_avg_sq"},
        Refused{"OptimizersOfTwoKinds",
                {Vector("optim.state.v.momentum_buffer")},
                {},
                ErrorKind::kUnsupported,
                "different kinds / optim.state.v.momentum_buffer"},
        Refused{"NoMoment",
                {},
                {},
                ErrorKind::kMissing,
                "optim.state.w.exp_avg_sq",
                "optim.state.w.exp_avg_sq"},
        Refused{"NoCount", {}, {}, ErrorKind::kMissing, "optim.state.w.step", "optim.state.w.step"},
        Refused{"UnequalCounts",
                {Number("optim.state.v.step", 4), Vector("optim.state.v.exp_avg"),
                 Vector("optim.state.v.exp_avg_sq")},
                {},
                ErrorKind::kUnsupported,
                "unequally often"},
        Refused{"HalfAnUpdate", {}, {}, ErrorKind::kBadMetadata, "optim.state.w.step", "", 2.5},
        Refused{"UpdatesTakenBack", {}, {}, ErrorKind::kBadMetadata, "optim.state.w.step", "", -1},
        Refused{"CountOfManyNumbers",
                {Vector("optim.state.v.step"), Vector("optim.state.v.exp_avg"),
                 Vector("optim.state.v.exp_avg_sq")},
                {},
                ErrorKind::kBadMetadata,
                "optim.state.v.step"},
        Refused{"Amsgrad",
                {},
                {{"optim.param_groups.0.amsgrad", "true"}},
                ErrorKind::kUnsupported,
                "optim.param_groups.0.amsgrad"},
        Refused{"Maximizes",
                {},
                {{"optim.param_groups.0.maximize", "true"}},
                ErrorKind::kUnsupported,
                "optim.param_groups.0.maximize"},
        Refused{"OfAnotherAdam",  // RAdam keeps the same moments
                {},
                {},
                ErrorKind::kUnsupported,
                "nothing says that the optimizer is Adam",
                "optim.param_groups.0.amsgrad"},
        Refused{"DecaysInTwoWays",
                {},
                {{"optim.param_groups.0.decoupled_weight_decay", "true"},
                 {"optim.param_groups.1.decoupled_weight_decay", "false"},
                 {"optim.param_groups.1.amsgrad", "false"},
                 {"optim.param_groups.1.params", "[]"}},
                ErrorKind::kUnsupported,
                "optim.param_groups.1.decoupled_weight_decay"},
        Refused{"CautiousAdam",
                {},
                {{"optim.param_groups.0.caution", "true"}},
                ErrorKind::kUnsupported,
                "a setting that Adam does not have / optim.param_groups.0.caution"},
        Refused{"RateThatIsAnObject",
                {},
                {{"optim.param_groups.0.lr", R"({"$opaque": "program.Rate"})"}},
                ErrorKind::kUnsupported,
                "not a plain value / optim.param_groups.0.lr"},
        Refused{"SettingThatIsNoPlainValue",
                {},
                {{"optim.param_groups.0.extra", R"({"a": 1})"}},
                ErrorKind::kUnsupported,
                "optim.param_groups.0.extra"},
        Refused{"RateThatIsText",
                {},
                {{"optim.param_groups.0.lr", R"("fast")"}},
                ErrorKind::kBadMetadata,
                "optim.param_groups.0.lr"},
        Refused{"NamesThatAreNumbers",
                {},
                {{"optim.param_groups.0.params", "[0, 1]"}},
                ErrorKind::kBadMetadata,
                "optim.param_groups.0.params"},
        Refused{"ANameTwice",
                {},
                {{"optim.param_groups.0.params", R"(["w", "w"])"}},
                ErrorKind::kBadMetadata,
                "optim.param_groups.0.params"},
        Refused{"RunOfArgumentsThatAreNone",
                {},
                {{"run.args", R"({"seed": 1})"}},
                ErrorKind::kMissing,
                "run.opt_param_scheduler.num_steps"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ReadRunTest, SaysThatThereAreNoSettings) {
  EXPECT_THAT(ReadRun(StatedSource(Adam(), {}), RunDetail::kWhole), FailsWith(ErrorKind::kMissing));
}

}  // namespace
}  // namespace ckpt::fsdp2
