#include "tools/ckpt-train/experiment/internal/topologies.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tools/ckpt-train/experiment/internal/proxy.h"
#include "trainer/model/settings_reader.h"
#include "trainer/step/parse_train_config.h"

namespace ckpt::train {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using testing::IsOk;

std::vector<std::string> Names(const std::vector<ReshardCase>& cases) {
  std::vector<std::string> names;
  for (const ReshardCase& each : cases) names.push_back(each.name);
  return names;
}

TEST(ReshardCasesTest, AreElevenAndTheWayBack) {
  EXPECT_THAT(Names(ReshardCases(ReshardSums::kTree)),
              ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "back"));
}

TEST(ReshardCasesTest, TheProxyTrainsUnderEveryMesh) {
  for (const ReshardCase& each : ReshardCases(ReshardSums::kTree)) {
    layout::Configuration settings = ProxySettings(100);
    settings.merge(MeshSettings(each.mesh));
    trainer::SettingsReader reader(settings);
    const Result<trainer::TrainConfig> config =
        trainer::ParseTrainConfig(reader, each.mesh.world_size);
    ASSERT_THAT(config, IsOk()) << each.name;
    EXPECT_EQ(config->global_batch_size, 8) << each.name;
    EXPECT_EQ(config->mesh.sharding, each.mesh.sharding) << each.name;
    EXPECT_EQ(config->mesh.outer, each.mesh.outer) << each.name;
  }
}

TEST(ReshardCasesTest, CanonicalLeavesNoTolerance) {
  for (const ReshardCase& each : ReshardCases(ReshardSums::kCanonical)) {
    EXPECT_TRUE(each.tolerance.bit_equal) << each.name;
  }
}

TEST(ReshardCasesTest, AGpuOwesTheSameBitsToOneMeshAlone) {
  for (const ReshardCase& each : ReshardCases(ReshardSums::kTreeButNorm)) {
    EXPECT_EQ(each.tolerance.bit_equal, each.name == "a") << each.name;
  }
}

TEST(SelectCasesTest, KeepsTheOrderAndBringsWhatIsResumedFrom) {
  const Result<std::vector<ReshardCase>> cases =
      SelectCases(ReshardCases(ReshardSums::kTree), std::vector<std::string>{"back", "a"});
  ASSERT_THAT(cases, IsOk());
  EXPECT_THAT(Names(*cases), ElementsAre("a", "c", "back"));
}

TEST(SelectCasesTest, RefusesUnknownNames) {
  EXPECT_THAT(SelectCases(ReshardCases(ReshardSums::kTree), std::vector<std::string>{"a", "z"}),
              FailsWith(ErrorKind::kUsage));
}

TEST(ProxyTextTest, IsTheSameEveryTime) {
  const std::string text = ProxyText();
  EXPECT_EQ(text, ProxyText());
  EXPECT_TRUE(text.starts_with("{\"text\": \"")) << text.substr(0, 80);
}

}  // namespace
}  // namespace ckpt::train
