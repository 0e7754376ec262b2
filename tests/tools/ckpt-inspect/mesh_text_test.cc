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

}  // namespace
}  // namespace ckpt::inspect
