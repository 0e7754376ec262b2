// What a run takes of its settings: those that would do nothing are refused by their names.
#include "trainer/run/run_config.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/model/settings_reader.h"
#include "trainer/run/checkpoint_settings.h"

namespace ckpt::train {
namespace {

using ::testing::AllOf;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::SaveState;
using testing::SmallSessions;
using testing::TinySettings;
using testing::With;
using trainer::HostGroup;

// What is wrong with settings of checkpoints that were all given.
std::string SaysOfCheckpoints(const layout::Configuration& given) {
  trainer::SettingsReader reader(given);
  ReadCheckpointSettings(reader);
  return reader.Finish().ToString();
}

TEST(FormSettingsTest, ThoseOfAnotherFormatAreRefusedWithItsName) {
  EXPECT_EQ(SaysOfCheckpoints({{"optimizer_form", "fully_sharded_model_space"}}),
            "usage: setting optimizer_form is of save_format=torch_dist, not of fsdp_dtensor: "
            "found \"fully_sharded_model_space\"");
  EXPECT_EQ(
      SaysOfCheckpoints({{"save_format", "torch_dist"}, {"optimizer_state_dict", "flattened"}}),
      "usage: setting optimizer_state_dict is of save_format=fsdp2, not of torch_dist: found "
      "\"flattened\"");
  EXPECT_EQ(SaysOfCheckpoints({{"save_format", "hdf5"}, {"tree", "megatron-bridge"}}),
            "usage: setting tree is of save_format=fsdp_dtensor or torch_dist, not of hdf5: found "
            "\"megatron-bridge\"");
}

TEST(FormSettingsTest, OfAnotherFormatWhatIsUsualIsTaken) {
  EXPECT_EQ(SaysOfCheckpoints({{"optimizer_form", "fully_reshardable"}}), "ok");
  EXPECT_EQ(SaysOfCheckpoints({{"save_format", "hf"}, {"tree", layout::Value()}}), "ok");
}

TEST(FormSettingsTest, AStoredOneIsLeftOutWhereTheRunGoesOnInAnotherFormat) {
  const layout::Configuration given = {{"save_format", "fsdp_dtensor"}};
  const layout::Configuration all = With(given, {{"optimizer_form", "fully_sharded_model_space"}});
  trainer::SettingsReader reader(all, &given);
  ReadCheckpointSettings(reader);
  EXPECT_THAT(reader.Finish(), IsOk());
  EXPECT_FALSE(reader.effective().contains("optimizer_form"));
}

// Of a run that trains.
Status ResolveTraining(Storage& storage, const layout::Configuration& given) {
  const layout::Configuration all = With(With(TinySettings(), {{"data_path", "data"}}), given);
  return ResolveRun(storage, all, 1, {.training = true}).status();
}

TEST(IdleSettingsTest, NoFormIsSavedWithoutSave) {
  const std::unique_ptr<Storage> disk = MakeMemoryStorage();
  EXPECT_EQ(ResolveTraining(*disk, {{"tree", "megatron-bridge"}}).ToString(),
            "usage: setting tree does nothing without save: found \"megatron-bridge\"");
  EXPECT_THAT(ResolveTraining(*disk, {{"tree", "megatron-lm"}}), IsOk());
  EXPECT_THAT(ResolveTraining(*disk, {{"tree", "megatron-bridge"}, {"save", "/run"}}), IsOk());
}

TEST(IdleSettingsTest, NoWeightsAreDrawnWhereTheyAreLoaded) {
  const std::unique_ptr<Storage> disk = MakeMemoryStorage();
  auto saved = SmallSessions::Create(
      *disk, With(TinySettings(), {{"save", "/run"}, {"init_method_std", 0.5}}), 1);
  ASSERT_THAT(saved, IsOk());
  ASSERT_THAT(saved->Run([](RankSession& session, HostGroup&) { return SaveState(session, 1, 1); }),
              IsOk());
  for (const bool finetune : {false, true}) {
    SCOPED_TRACE(finetune);
    const layout::Configuration load = {{"load", "/run"}, {"finetune", finetune}};
    EXPECT_THAT(ResolveTraining(*disk, load), IsOk());
    EXPECT_EQ(ResolveTraining(*disk, With(load, {{"init_method_std", 0.1}})).ToString(),
              "usage: setting init_method_std does nothing where load holds weights: found 0.1");
    // The settings that started the run.
    EXPECT_THAT(ResolveTraining(*disk, With(load, {{"init_method_std", 0.5}})), IsOk());
  }
}

class WeightsWithoutRunTest : public ::testing::Test {
 protected:
  const std::string model_ = (testing::GoldenDir() / "hf" / "qwen3moe-norm-bf16" / "ckpt").string();
  const layout::Configuration load_ = {{"load", model_}, {"seq_length", 8}};
};

TEST_F(WeightsWithoutRunTest, AreTakenWhereNothingElseIsNeeded) {
  const auto loaded = ResolveRun(PosixStorage(), load_, 1, {.weights = true});
  ASSERT_THAT(loaded, IsOk());
  EXPECT_TRUE(loaded->goes_on());
  const auto begun = ResolveRun(PosixStorage(), {{"init", "hf:" + model_}, {"seq_length", 8}}, 1);
  ASSERT_THAT(begun, IsOk());
  EXPECT_EQ(loaded->train.model, begun->train.model);
}

TEST_F(WeightsWithoutRunTest, AreNoRunToTrainOn) {
  const auto refused = ResolveRun(PosixStorage(), load_, 1, {.training = true});
  ASSERT_THAT(refused, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(refused.status().ToString(), HasSubstr("there are weights, but no run to resume"));
}

TEST_F(WeightsWithoutRunTest, WhatTheyDoNotSayIsMissingByName) {
  const auto refused =
      ResolveRun(PosixStorage(), {{"load", model_}}, 1, {.evaluation = true, .weights = true});
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(refused.status().ToString(), AllOf(HasSubstr("setting valid_data_path is missing"),
                                                 HasSubstr("setting seq_length is missing")));
}

}  // namespace
}  // namespace ckpt::train
