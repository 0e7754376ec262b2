#include "tools/ckpt-inspect/mesh_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;

TEST(MeshTextTest, ReadsEveryWord) {
  const auto mesh = ParseMesh("dp=8,hsdp=2,ep=4");
  ASSERT_THAT(mesh, IsOk());
  EXPECT_EQ(mesh->world_size, 8);
  EXPECT_EQ(mesh->num_instances, 2);
  EXPECT_EQ(mesh->expert_parallel, 4);
  EXPECT_EQ(mesh->sharding, trainer::Sharding::kOptimGradsParams);
  EXPECT_EQ(mesh->outer, trainer::OuterSharding::kNoShard);
  const auto sliced = ParseMesh("sharding=optim,hfsdp=4,dp=100000");
  ASSERT_THAT(sliced, IsOk());
  EXPECT_EQ(sliced->world_size, 100'000);
  EXPECT_EQ(sliced->num_instances, 4);
  EXPECT_EQ(sliced->outer, trainer::OuterSharding::kOptim);
  EXPECT_EQ(sliced->sharding, trainer::Sharding::kOptim);
}

TEST(MeshTextTest, RefusesAllElse) {
  for (const char* text :
       {"", "dp", "dp=", "dp=0", "dp=-1", "dp=2x", "dp=1000001", "dp=99999999999", "ep=2",
        "dp=2,dp=2", "dp=2,tp=2", "dp=2,hsdp=2,hfsdp=2", "dp=2,,ep=1", "dp=2,sharding=all"}) {
    EXPECT_THAT(ParseMesh(text), FailsWith(ErrorKind::kUsage)) << text;
  }
}

TEST(MeshTextTest, SaysWhatTheTrainerRefusesInItsOwnWords) {
  struct Case {
    const char* mesh;
    const char* message;
    const char* hint;
  };
  for (const Case& c :
       {Case{"dp=8,hsdp=3", "hsdp does not divide the ranks", "choose 1, 2, 4 or 8"},
        Case{"dp=8,hfsdp=3", "hfsdp does not divide the ranks", "choose 1, 2, 4 or 8"},
        Case{"dp=8,hsdp=4,ep=4", "ep does not divide the ranks of an instance",
             "choose ep 1 or 2, or hsdp 1 or 2"},
        Case{"dp=8,hfsdp=1", "outer sharding needs several instances",
             "raise hfsdp, or take hsdp instead"},
        Case{"dp=8,hfsdp=2,sharding=optim", "outer sharding needs fully sharded instances",
             "set sharding to optim_grads_params, or take hsdp instead"}}) {
    SCOPED_TRACE(c.mesh);
    const auto mesh = ParseMesh(c.mesh);
    ASSERT_THAT(mesh, IsOk());
    const Status refused = trainer::ValidateMesh(*mesh, 8, WordsOfMesh(*mesh));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.first().message, c.message);
    EXPECT_EQ(refused.first().hint, c.hint);
  }
}

}  // namespace
}  // namespace ckpt::inspect
