#include "formats/torch_dist/internal/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/digest.h"
#include "core/checkpoint/validate.h"
#include "core/io/posix_storage.h"
#include "tests/formats/torch_dist/iteration_of.h"
#include "tests/testing/golden.h"
#include "tests/testing/golden_tensors.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::GoldenCase;
using testing::IsOk;
using testing::IterationOf;

class TorchDistGoldenTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, TorchDistGoldenTest,
                         ::testing::ValuesIn(testing::GoldenCases("torch_dist")),
                         [](const auto& golden) { return golden.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TorchDistGoldenTest);

TEST_P(TorchDistGoldenTest, HoldsTheTensorsThatMegatronSaved) {
  const GoldenCase golden = testing::LoadGolden("torch_dist", GetParam());
  const auto source = torch_dist::Source::Open(PosixStorage(), IterationOf(golden));
  ASSERT_THAT(source, IsOk());
  testing::ExpectGoldenTensors(**source, golden, testing::WithoutDigest::kMustBeReadable);
  for (const Problem& problem : ValidateIndex(**source)) {
    EXPECT_EQ(problem.severity, Severity::kWarning) << Describe(problem);
  }
}

TEST_P(TorchDistGoldenTest, HasTheCommonStateInBothGenerations) {
  const GoldenCase golden = testing::LoadGolden("torch_dist", GetParam());
  const auto source = torch_dist::Source::Open(PosixStorage(), IterationOf(golden));
  ASSERT_THAT(source, IsOk());
  const ObjectEntry* common = (*source)->index().FindObject("common_state");
  ASSERT_NE(common, nullptr);
  EXPECT_EQ((*source)->index().FindObject("common_state/shard_0_1"), nullptr);
  const Result<RenderedObject> rendered = (*source)->ReadObject(*common);
  ASSERT_THAT(rendered, IsOk());
  EXPECT_EQ(rendered->type, "dict");
  for (const ObjectEntry& object : (*source)->index().objects()) {
    EXPECT_THAT((*source)->ReadObject(object), IsOk()) << object.key;
  }
}

}  // namespace
}  // namespace ckpt
