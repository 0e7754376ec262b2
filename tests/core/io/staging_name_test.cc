// Where a target is prepared, however its name is written.
#include "core/io/staging_name.h"

#include <gtest/gtest.h>

namespace ckpt {
namespace {

TEST(StagingNameTest, LiesBesideTheTarget) {
  EXPECT_EQ(StagingOf("run/out"), Path("run/out.ckptkit-partial"));
  for (const char* target : {"run/out/", "run/out//", "run/out/.", "run/out/./"}) {
    EXPECT_EQ(StagingOf(target), StagingOf("run/out")) << target;
  }
  EXPECT_EQ(StagingOf("out/"), StagingOf("out"));
  EXPECT_EQ(StagingOf("/out/"), StagingOf("/out"));
}

TEST(StagingNameTest, KeepsTheRestAsItIsWritten) {
  EXPECT_EQ(StagingOf("link/../out/"), Path("link/../out.ckptkit-partial"));
  EXPECT_EQ(WithoutTrailingSlash("./link/../out/"), Path("./link/../out"));
  EXPECT_EQ(WithoutTrailingSlash("/"), Path("/"));
  EXPECT_EQ(WithoutTrailingSlash("./"), Path("."));
  EXPECT_EQ(WithoutTrailingSlash(""), Path());
}

}  // namespace
}  // namespace ckpt
