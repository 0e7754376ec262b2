#include "trainer/ops/product_algorithms.h"

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

ProductAlgorithms TwoAlgorithms() {
  ProductAlgorithms algorithms = {.origin = {.device = "NVIDIA H200", .library = "cuBLASLt 130100"},
                                  .of_shape = {}};
  const ProductShape shape = {.m = 16384,
                              .n = 6144,
                              .k = 1024,
                              .transpose_b = true,
                              .operands = DType::kBfloat16,
                              .result = DType::kBfloat16};
  algorithms.of_shape[shape] = {1, 2, 3, 0xfedcba9876543210U, 0, 0, 0, ~std::uint64_t{0}};
  ProductShape of_weights = shape;
  of_weights.transpose_a = of_weights.accumulate = true;
  of_weights.result = DType::kFloat32;
  algorithms.of_shape[of_weights] = {66};
  return algorithms;
}

// Replaces the first `from` in a file of two algorithms.
std::string Changed(std::string_view from, std::string_view to) {
  std::string text = FormatProductAlgorithms(TwoAlgorithms());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProductAlgorithmsTest, AreReadAsTheyWereWritten) {
  const ProductAlgorithms written = TwoAlgorithms();
  const auto read = ParseProductAlgorithms(FormatProductAlgorithms(written), "p.json");
  ASSERT_THAT(read, testing::IsOk());
  EXPECT_EQ(read->origin, written.origin);
  EXPECT_EQ(read->of_shape, written.of_shape);
}

TEST(ProductAlgorithmsTest, NothingInAFileIsPassedOver) {
  struct Case {
    std::string_view from, to, says;
  };
  for (const Case& wrong :
       {Case{"\"library\"", "\"version\"", "a member is not known"},
        Case{"\"k\":1024", "\"k\":1024,\"speed\":3", "a member is not known"},
        Case{"\"m\":16384", "\"m\":0", "a size is below 1"},
        Case{"\"bfloat16\"", "\"float17\"", "this is not a dtype"},
        Case{"fedcba9876543210", "fedcba987654321g", "this is not an algorithm"},
        Case{"fedcba9876543210", "fedcba98", "this is not an algorithm"},
        Case{"\"transpose_a\":true", "\"transpose_a\":1", "/products/1"}}) {
    const auto read = ParseProductAlgorithms(Changed(wrong.from, wrong.to), "p.json");
    ASSERT_THAT(read, FailsWith(ErrorKind::kBadMetadata)) << wrong.to;
    EXPECT_THAT(read.status().ToString(), HasSubstr(std::string(wrong.says)));
    EXPECT_THAT(read.status().ToString(), HasSubstr("p.json"));
  }
}

TEST(ProductAlgorithmsTest, AProductIsThereOnce) {
  std::string text = FormatProductAlgorithms(TwoAlgorithms());
  const std::size_t begin = text.find('[') + 1;
  text.insert(begin, text.substr(begin, text.find('}') - begin + 1) + ",");
  const auto read = ParseProductAlgorithms(text, "p.json");
  ASSERT_THAT(read, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(read.status().ToString(), HasSubstr("this product is there twice at /products/1"));
}

TEST(ProductShapeTest, SaysTheProduct) {
  const ProductShape forward = {.m = 3,
                                .n = 5,
                                .k = 7,
                                .transpose_b = true,
                                .operands = DType::kBfloat16,
                                .result = DType::kBfloat16};
  EXPECT_EQ(forward.Text(), "[3, 5] = [3, 7] · [5, 7]ᵀ, bfloat16 to bfloat16");
  const ProductShape weights = {.m = 3, .n = 5, .k = 7, .transpose_a = true, .accumulate = true};
  EXPECT_EQ(weights.Text(), "[3, 5] += [7, 3]ᵀ · [7, 5], float32 to float32");
}

TEST(ProductTrialTest, WhatIsChosenIsWhatAFileGets) {
  ProductTrial trial;
  trial.origin.device = "a GPU";
  trial.products[{.m = 1}] = {.candidates = {{10}, {11}, {12}}, .chosen = 2};
  trial.products[{.m = 2}] = {.candidates = {{20}}};
  const ProductAlgorithms chosen = trial.Chosen();
  EXPECT_EQ(chosen.origin, trial.origin);
  const std::map<ProductShape, ProductAlgorithm> expected = {{{.m = 1}, {12}}};
  EXPECT_EQ(chosen.of_shape, expected);
}

}  // namespace
}  // namespace ckpt::trainer
