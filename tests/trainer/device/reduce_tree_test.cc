#include "trainer/device/cpu/internal/reduce_tree.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/rank_values.h"

namespace ckpt::trainer {
namespace {

template <typename T>
std::vector<T> SumOf(int num_inputs, std::int64_t count) {
  std::vector<std::vector<T>> values;
  std::vector<const std::byte*> inputs;
  for (int rank = 0; rank < num_inputs; ++rank) {
    values.push_back(ValuesOf<T>(rank, count));
    inputs.push_back(reinterpret_cast<const std::byte*>(values.back().data()));
  }
  std::vector<T> out(static_cast<std::size_t>(count));
  ReduceByTree(ReduceOp::kSum, kDTypeOf<T>, inputs, reinterpret_cast<std::byte*>(out.data()),
               count);
  return out;
}

TEST(ReduceTreeTest, SumsInTheDocumentedOrderForEveryNumberOfInputs) {
  for (int num_inputs = 1; num_inputs <= 17; ++num_inputs) {
    std::vector<float> expected;
    std::vector<Bf16> expected_bf16;
    for (std::int64_t i = 0; i < 2500; ++i) {
      expected.push_back(SumAt<float>(num_inputs, i));
      expected_bf16.push_back(SumAt<Bf16>(num_inputs, i));
    }
    ExpectSameBits(SumOf<float>(num_inputs, 2500), expected, std::to_string(num_inputs));
    ExpectSameBits(SumOf<Bf16>(num_inputs, 2500), expected_bf16, std::to_string(num_inputs));
  }
}

// Otherwise the tests of the order would show nothing.
TEST(ReduceTreeTest, TheTestsValuesTellOneOrderFromAnother) {
  for (const int num_inputs : {4, 5, 8}) {
    int differences = 0;
    for (std::int64_t i = 0; i < 1000; ++i) {
      float one_by_one = ValueAt<float>(0, i);
      for (int rank = 1; rank < num_inputs; ++rank) one_by_one += ValueAt<float>(rank, i);
      differences += one_by_one != SumAt<float>(num_inputs, i) ? 1 : 0;
    }
    EXPECT_GT(differences, 100) << num_inputs;
  }
}

TEST(ReduceTreeTest, WritesOverAnyOfItsInputs) {
  constexpr int kInputs = 5;
  constexpr std::int64_t kCount = 2500;
  const std::vector<float> expected = SumOf<float>(kInputs, kCount);
  for (std::size_t target = 0; target < kInputs; ++target) {
    std::vector<std::vector<float>> values;
    std::vector<const std::byte*> inputs;
    for (int rank = 0; rank < kInputs; ++rank) values.push_back(ValuesOf<float>(rank, kCount));
    for (const auto& input : values) {
      inputs.push_back(reinterpret_cast<const std::byte*>(input.data()));
    }
    ReduceByTree(ReduceOp::kSum, DType::kFloat32, inputs,
                 reinterpret_cast<std::byte*>(values[target].data()), kCount);
    ExpectSameBits(values[target], expected, "over input " + std::to_string(target));
  }
}

TEST(ReduceTreeTest, IntegersWrap) {
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t one = 1;
  std::int64_t sum = 0;
  const std::vector<const std::byte*> inputs = {reinterpret_cast<const std::byte*>(&largest),
                                                reinterpret_cast<const std::byte*>(&one)};
  ReduceByTree(ReduceOp::kSum, DType::kInt64, inputs, reinterpret_cast<std::byte*>(&sum), 1);
  EXPECT_EQ(sum, std::numeric_limits<std::int64_t>::min());
}

}  // namespace
}  // namespace ckpt::trainer
