// Orders of parameters in a buffer, found among all that fit.
#include "formats/torch_dist/internal/buffer_search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/torch_dist/internal/module_order.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr std::int64_t kElems = 64;  // of every parameter

// Parameters of as many weights, each of one element along one dim.
class BufferSearchTest : public ::testing::Test {
 protected:
  void AddParameter(const std::string& name, std::int64_t layer = 0) {
    auto& weight = weights_.emplace_back(std::make_unique<GlobalTensor>());
    weight->key = fmt::format("{} of layer {}", name, layer);
    parameters_.push_back({.weight = weight.get(),
                           .name = name,
                           .layer = layer,
                           .boxes = {{.offsets = {0}, .sizes = {kElems}}},
                           .elems = kElems});
  }
  static BufferPosition At(std::size_t position) {
    return {.bucket = 0, .elem = static_cast<std::int64_t>(position) * kElems};
  }
  void AddStep(std::size_t position, std::size_t parameter, std::size_t places = 1) {
    steps_[At(position)].push_back({.parameter = parameter, .next = At(position + places)});
  }
  // At every position any parameter fits.
  void AddAllSteps() {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (std::size_t q = 0; q < parameters_.size(); ++q) AddStep(p, q);
    }
  }
  [[nodiscard]] Result<std::vector<PlacedParameter>> Find(std::size_t positions) const {
    return FindOrder(steps_, At(positions), parameters_);
  }

  // Every order that goes down in the order of modules, one after the other.
  void Enumerate(std::size_t position, std::size_t end, const std::optional<ModulePlace>& before,
                 std::vector<std::size_t>& order, std::vector<std::vector<std::size_t>>& orders) {
    if (position == end) orders.push_back(order);
    const auto steps = steps_.find(At(position));
    if (position >= end || steps == steps_.end()) return;
    for (const BufferStep& step : steps->second) {
      const auto place = PlaceOf(parameters_[step.parameter].name, 0, 0, {});
      if (place && before && !(*place < *before)) continue;
      order.push_back(step.parameter);
      Enumerate(static_cast<std::size_t>(step.next.elem / kElems), end, place ? place : before,
                order, orders);
      order.pop_back();
    }
  }

  std::vector<std::unique_ptr<GlobalTensor>> weights_;
  std::vector<LocalParameter> parameters_;
  BufferSteps steps_;
};

TEST_F(BufferSearchTest, FindsTheOneOrderAmongAllThatFit) {
  constexpr std::size_t kPositions = 5;
  for (const char* name :
       {"embedding.word_embeddings.weight", "embedding.position_embeddings.weight",
        "decoder.final_layernorm.weight", "decoder.final_layernorm.bias", "output_layer.weight",
        "of no known place", "of no known place either"}) {
    AddParameter(name);
  }
  std::mt19937 random(20261129);
  std::vector<int> found(3);  // by how many orders there are: none, one, several
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    steps_.clear();
    for (std::size_t position = 0; position < kPositions; ++position) {
      for (std::size_t p = 0; p < parameters_.size(); ++p) {
        if (random() % 4 == 0) AddStep(position, p, 1 + random() % 2);
      }
    }
    std::vector<std::size_t> order;
    std::vector<std::vector<std::size_t>> orders;
    Enumerate(0, kPositions, std::nullopt, order, orders);
    ++found[std::min<std::size_t>(orders.size(), 2)];
    const auto searched = Find(kPositions);
    if (orders.empty()) {
      EXPECT_THAT(searched, FailsWith(ErrorKind::kNotFound));
    } else if (orders.size() > 1) {
      EXPECT_THAT(searched, FailsWith(ErrorKind::kUnsupported));
    } else {
      ASSERT_THAT(searched, IsOk());
      std::vector<std::size_t> placed;
      for (const PlacedParameter& parameter : *searched) placed.push_back(parameter.parameter);
      EXPECT_EQ(placed, orders.front());
    }
  }
  EXPECT_THAT(found, ::testing::Each(::testing::Gt(100)));
}

// As of a new model, whose norms are all ones.
TEST_F(BufferSearchTest, OrdersManyEqualVectors) {
  constexpr std::size_t kLayers = 300;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    AddParameter("decoder.layers.input_layernorm.weight", static_cast<std::int64_t>(layer));
  }
  AddAllSteps();
  const auto order = Find(kLayers);
  ASSERT_THAT(order, IsOk());
  for (std::size_t position = 0; position < kLayers; ++position) {
    EXPECT_EQ((*order)[position].parameter, kLayers - 1 - position);
  }
}

TEST_F(BufferSearchTest, RefusesManyEqualVectorsOfUnknownOrder) {
  constexpr std::size_t kVectors = 300;
  for (std::size_t v = 0; v < kVectors; ++v) AddParameter(fmt::format("vector {}", v));
  AddAllSteps();
  const auto order = Find(kVectors);
  ASSERT_THAT(order, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(order.status().first().message, HasSubstr("two parameters fit"));
}

}  // namespace
}  // namespace ckpt::torch_dist
