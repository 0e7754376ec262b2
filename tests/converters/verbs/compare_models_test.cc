#include <gmock/gmock.h>

#include "converters/verbs/internal/verify_conversion.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::IsOk;

ModelDigest Model(const std::vector<std::pair<std::string, std::string>>& tensors) {
  ModelDigest model;
  for (const auto& [key, hex] : tensors) {
    model.tensors.push_back({.key = key, .dtype = DType::kFloat32, .shape = {1}, .hex = hex});
  }
  return model;
}

TEST(CompareModelsTest, TheSameModelsAreTheSame) {
  const ModelDigest model = Model({{"a", "1"}, {"b", "2"}});
  EXPECT_THAT(CompareModels(model, model, "/out"), IsOk());
  EXPECT_THAT(CompareModels({}, {}, "/out"), IsOk());
}

// It was the case that no tensor was named, and that this passed for success.
TEST(CompareModelsTest, NamesATensorTooMany) {
  const ModelDigest source = Model({{"b", "2"}, {"d", "4"}});
  const Status status = CompareModels(
      source, Model({{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}, {"e", "5"}}), "/out");
  ASSERT_EQ(status.problems().size(), 3U);
  for (const auto& [at, key] : {std::pair<std::size_t, const char*>(0, "a"), {1, "c"}, {2, "e"}}) {
    EXPECT_EQ(status.problems()[at].kind, ErrorKind::kValueMismatch);
    EXPECT_EQ(status.problems()[at].tensor, key);
    EXPECT_EQ(status.problems()[at].file, "/out");
  }
}

TEST(CompareModelsTest, NamesATensorThatIsMissingAndOneThatDiffers) {
  const Status status =
      CompareModels(Model({{"a", "1"}, {"b", "2"}, {"c", "3"}}), Model({{"b", "9"}}), "/out");
  ASSERT_EQ(status.problems().size(), 3U);
  EXPECT_EQ(status.problems()[0].kind, ErrorKind::kMissing);
  EXPECT_EQ(status.problems()[0].tensor, "a");
  EXPECT_EQ(status.problems()[1].kind, ErrorKind::kValueMismatch);
  EXPECT_EQ(status.problems()[1].expected, "2");
  EXPECT_EQ(status.problems()[1].actual, "9");
  EXPECT_EQ(status.problems()[2].tensor, "c");
}

}  // namespace
}  // namespace ckpt
