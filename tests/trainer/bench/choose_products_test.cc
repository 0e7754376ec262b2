#include "trainer/bench/choose_products.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "core/base/status.h"
#include "tests/testing/matchers.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using testing::IsOk;
using trainer::ProductShape;
using trainer::ProductTrial;

ProductShape Square(std::int64_t size) { return {.m = size, .n = size, .k = size}; }

// A trial of two large products and one that is too small to matter, with three candidates each.
ProductTrial ThreeProducts() {
  ProductTrial trial;
  for (const std::int64_t size : {4096, 2048, 64}) {
    trial.products[Square(size)].candidates = {{1}, {2}, {3}};
  }
  return trial;
}

TEST(ChooseProductsTest, KeepsWhatMakesTheWholeStepFaster) {
  ProductTrial trial = ThreeProducts();
  const auto chosen = [&](std::int64_t size) { return trial.products[Square(size)].chosen; };
  // The large product's candidates are faster, the last most; one of the other product's slower and
  // one faster by less than noise; the small one's would be best of all.
  const auto time = [&]() -> Result<double> {
    constexpr double kLarge[] = {0, -2, -3};
    constexpr double kOther[] = {0, 4, -0.1};
    return 100 + kLarge[chosen(4096)] + kOther[chosen(2048)] - 50 * static_cast<double>(chosen(64));
  };
  const Result<ProductChoice> choice = ChooseProducts(trial, time);
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(chosen(4096), 2U);
  EXPECT_EQ(chosen(2048), 0U);
  EXPECT_EQ(chosen(64), 0U);
  EXPECT_EQ(choice->num_products, 3U);
  EXPECT_EQ(choice->num_tried, 4U);
  EXPECT_EQ(choice->num_changed, 1U);
  EXPECT_DOUBLE_EQ(choice->library_ms, 100);
  EXPECT_DOUBLE_EQ(choice->chosen_ms, 97);
}

// A step that was fast once by chance does not change the choice.
TEST(ChooseProductsTest, OneComparisonIsNotEnough) {
  ProductTrial trial = ThreeProducts();
  int timings = 0;
  const auto time = [&]() -> Result<double> { return ++timings == 2 ? 50 : 100; };
  ASSERT_THAT(ChooseProducts(trial, time), IsOk());
  for (const auto& [shape, product] : trial.products) EXPECT_EQ(product.chosen, 0U) << shape.m;
}

TEST(ChooseProductsTest, AStepThatFailsEndsIt) {
  ProductTrial trial = ThreeProducts();
  int timings = 0;
  const auto time = [&]() -> Result<double> {
    if (++timings == 2) return Error(ErrorKind::kSystem, "the GPU fell out");
    return 100;
  };
  EXPECT_THAT(ChooseProducts(trial, time), FailsWith(ErrorKind::kSystem));
  EXPECT_EQ(timings, 2);
  for (const auto& [shape, product] : trial.products) EXPECT_EQ(product.chosen, 0U) << shape.m;
}

}  // namespace
}  // namespace ckpt::train
