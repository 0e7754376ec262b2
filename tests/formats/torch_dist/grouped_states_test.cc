// States of experts that are one array, which lie in another order than their weights.
#include "formats/torch_dist/internal/grouped_states.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/bytes.h"
#include "core/checkpoint/forwarding_source.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "core/training/run_format.h"
#include "formats/dcp/writer.h"
#include "formats/torch_dist/format.h"
#include "formats/torch_dist/internal/source.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;

const std::string kWeight = "decoder.layers.mlp.experts.experts.linear_fc2.weight";
const std::string kMoment = "optimizer.state.exp_avg." + kWeight;

constexpr const char* kArgsOfOneArray = R"({"moe_grouped_gemm":true,"transformer_impl":"local"})";
constexpr const char* kArgsOfOneForEach =
    R"({"moe_grouped_gemm":true,"transformer_impl":"transformer_engine"})";

// What a source says of tensors, with a common state.
class WithArgs final : public ForwardingSource {
 public:
  WithArgs(std::unique_ptr<CheckpointSource> below, std::optional<std::string> args)
      : ForwardingSource(*below), owned_(std::move(below)), args_(std::move(args)) {}

  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    if (!args_) return Error(ErrorKind::kChecksum, "damaged").File("common.pt").Tensor(object.key);
    const std::string json =
        R"({"args":{"$object":{"class":"argparse.Namespace","state":)" + *args_ + "}}}";
    return RenderedObject{.type = "dict", .json = json, .warnings = {}};
  }

 private:
  std::unique_ptr<CheckpointSource> owned_;
  std::optional<std::string> args_;
};

std::vector<float> CountUp(const Dims& shape) {
  std::vector<float> values(static_cast<std::size_t>(NumElements(shape)));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

std::vector<float> ReadWhole(const CheckpointSource& source, const std::string& key) {
  const GlobalTensor* const tensor = source.index().FindTensor(key);
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<std::size_t>(NumElements(tensor->shape)));
  EXPECT_THAT(ReadBox(source, *tensor, WholeBox(tensor->shape),
                      std::as_writable_bytes(std::span(values)), 1 << 16),
              IsOk());
  return values;
}

Dims ShapeOf(const CheckpointSource& source, const std::string& key) {
  const GlobalTensor* const tensor = source.index().FindTensor(key);
  return tensor == nullptr ? Dims() : tensor->shape;
}

class GroupedStatesTest : public ::testing::Test {
 protected:
  // A tensor of the floats 0, 1, …, in a chunk for each of its boxes, which are rows of one file.
  void Add(const std::string& key, const Dims& shape, const std::string& encoding,
           const std::vector<Box>& boxes) {
    Add(key, shape, encoding, boxes, CountUp(shape));
  }
  void Add(const std::string& key, const Dims& shape, const std::string& encoding,
           const std::vector<Box>& boxes, const std::vector<float>& values) {
    const ByteSpan bytes = std::as_bytes(std::span(values));
    const FileId file = builder_.AddFile(key);
    files_.push_back(MakeMemoryFile(key, Bytes(bytes.begin(), bytes.end())));
    const EncodingId coding = builder_.AddEncoding(encoding);
    builder_.AddTensor(key, DType::kFloat32, shape);
    std::uint64_t offset = 0;
    for (const Box& box : boxes) {
      const auto size = static_cast<std::uint64_t>(NumElements(box.sizes)) * sizeof(float);
      builder_.AddChunk(box, file, coding, offset, size);
      offset += size;
    }
  }
  // Weights of two experts, and what the optimizer has of them: flattened, a chunk for each expert.
  void AddExperts(const Dims& weight, const Dims& state, const std::string& encoding = "raw+flat") {
    Add(kWeight, weight, "raw", {WholeBox(weight)});
    std::vector<Box> boxes;
    for (std::int64_t expert = 0; expert < state[0]; ++expert) {
      boxes.push_back({.offsets = {expert, 0, 0}, .sizes = {1, state[1], state[2]}});
    }
    Add(kMoment, state, encoding, boxes);
  }
  // The exact values of weights {2, 2, 2}.
  void AddExact(const std::vector<float>& values) {
    const Dims shape = {2, 2, 2};
    Add("optimizer.state.fp32_param." + kWeight, shape, "raw+flat", {WholeBox(shape)}, values);
  }
  // With these arguments of the run; nothing: they are damaged.
  std::unique_ptr<CheckpointSource> Stored(std::optional<std::string> args) {
    files_.push_back(MakeMemoryFile("common.pt", Bytes(1)));
    builder_.AddObject({.key = "common_state",
                        .file = builder_.AddFile("common.pt"),
                        .encoding = builder_.AddEncoding("torch_save"),
                        .offset_bytes = 0,
                        .size_bytes = 1});
    return std::make_unique<WithArgs>(
        MakePartialSource(builder_.Build().value(), std::move(files_)).value(), std::move(args));
  }
  std::unique_ptr<CheckpointSource> Seen(std::optional<std::string> args) {
    auto seen = TurnGroupedStates(Stored(std::move(args)));
    EXPECT_THAT(seen, IsOk());
    return *std::move(seen);
  }

  IndexBuilder builder_;
  std::vector<std::shared_ptr<const ReadableFile>> files_;
};

TEST_F(GroupedStatesTest, TheShapeShowsThatTheOrderIsAnother) {
  AddExperts({2, 3, 2}, {2, 2, 3});
  const auto seen = Seen("{}");
  EXPECT_THAT(ShapeOf(*seen, kMoment), ElementsAre(2, 3, 2));
  EXPECT_THAT(ReadWhole(*seen, kMoment), ElementsAre(0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11));
  EXPECT_EQ(ReadWhole(*seen, kWeight), CountUp({2, 3, 2}));
  EXPECT_TRUE(ValidateIndex(*seen).empty());
}

TEST_F(GroupedStatesTest, PartsOfBlocksAreTurned) {
  Add(kWeight, {1, 3, 2}, "raw", {{.offsets = {0, 0, 0}, .sizes = {1, 3, 2}}});
  Add(kMoment, {1, 2, 3}, "raw+flat",
      {{.offsets = {0, 0, 0}, .sizes = {1, 1, 2}},
       {.offsets = {0, 0, 2}, .sizes = {1, 1, 1}},
       {.offsets = {0, 1, 0}, .sizes = {1, 1, 3}}});
  const auto seen = Seen("{}");
  EXPECT_THAT(ReadWhole(*seen, kMoment), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST_F(GroupedStatesTest, OfSquareWeightsTheArgumentsSayIt) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  EXPECT_THAT(ReadWhole(*Seen(kArgsOfOneArray), kMoment), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

TEST_F(GroupedStatesTest, ExpertsOfTheirOwnAreAsTheirWeights) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  EXPECT_EQ(ReadWhole(*Seen(kArgsOfOneForEach), kMoment), CountUp({2, 2, 2}));
}

// The arguments do not say the version of Transformer Engine, on which the class depends.
TEST_F(GroupedStatesTest, WhereArgumentsLeaveItOpenTheExactValuesSayIt) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  AddExact({0, 2.01F, 1, 3, 4, 6, 5, 7});
  EXPECT_THAT(ReadWhole(*Seen(kArgsOfOneForEach), kMoment), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

TEST_F(GroupedStatesTest, ExactValuesInTheWeightsOrderAreNotTurned) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  AddExact({0, 1.01F, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(ReadWhole(*Seen(std::nullopt), kMoment), CountUp({2, 2, 2}));
}

TEST_F(GroupedStatesTest, ExactValuesThatDoNotTellLeaveItToTheArguments) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  AddExact({0, 1.5F, 1.5F, 3, 4, 6, 5, 7});
  EXPECT_THAT(ReadWhole(*Seen(kArgsOfOneArray), kMoment), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

// As layers do that are stacked, of which the first matrix is compared.
TEST_F(GroupedStatesTest, TheFirstRowsOfManyTell) {
  constexpr std::int64_t kRows = 70;
  const Dims shape = {2, 1, kRows, kRows};
  std::vector<float> exact(static_cast<std::size_t>(NumElements(shape)));
  std::vector<float> weights(exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const std::size_t row = i / kRows % kRows;
    const std::size_t column = i % kRows;
    exact[i] = static_cast<float>(row) * 0.37F - static_cast<float>(column) * 0.11F;
    weights[i - row * kRows - column + column * kRows + row] = std::floor(exact[i] * 64) / 64;
  }
  Add(kWeight, shape, "raw", {WholeBox(shape)}, weights);
  Add("optimizer.state.fp32_param." + kWeight, shape, "raw+flat", {WholeBox(shape)}, exact);
  Add(kMoment, shape, "raw+flat", {WholeBox(shape)});
  const std::vector<float> moments = ReadWhole(*Seen("{}"), kMoment);
  ASSERT_EQ(moments.size(), exact.size());
  EXPECT_EQ(moments[1], static_cast<float>(kRows));
}

// All experts of a run are of one class.
TEST_F(GroupedStatesTest, AnotherPairMayTell) {
  const std::string first = "decoder.layers.mlp.experts.experts.linear_fc1.weight";
  const Dims shape = {2, 2, 2};
  const std::vector<float> zeros(8);
  Add(first, shape, "raw", {WholeBox(shape)}, zeros);
  Add("optimizer.state.fp32_param." + first, shape, "raw+flat", {WholeBox(shape)}, zeros);
  AddExperts(shape, shape);
  AddExact({0, 2, 1, 3, 4, 6, 5, 7});
  EXPECT_THAT(ReadWhole(*Seen("{}"), kMoment), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

TEST_F(GroupedStatesTest, WhereNothingSaysItSquareStatesAreRefusedByName) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  AddExact({0, 1.5F, 1.5F, 3, 4, 6, 5, 7});
  const auto seen = Seen("{}");
  for (const std::string& key : {kMoment, "optimizer.state.fp32_param." + kWeight}) {
    EXPECT_EQ(seen->index().FindTensor(key), nullptr);
    const Status refused = seen->index().CheckDeliverable(key);
    ASSERT_THAT(refused, FailsWith(ErrorKind::kMissing));
    EXPECT_THAT(refused.first().expected, HasSubstr("moe_grouped_gemm"));
  }
  EXPECT_EQ(ReadWhole(*seen, kWeight), CountUp({2, 2, 2}));
}

// Otherwise square states would be as before.
TEST_F(GroupedStatesTest, WhatWasTurnedStays) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  std::unique_ptr<CheckpointSource> once = Seen(kArgsOfOneArray);
  const CheckpointSource* const turned = once.get();
  const auto twice = TurnGroupedStates(std::move(once));
  ASSERT_THAT(twice, IsOk());
  EXPECT_EQ(twice->get(), turned);
}

TEST_F(GroupedStatesTest, WhoSeesParametersTurnsNothing) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  const std::shared_ptr<const CheckpointSource> turned = Seen(kArgsOfOneArray);
  const auto seen = kFormat.run->by_parameter(turned);
  ASSERT_THAT(seen, IsOk());
  EXPECT_EQ(*seen, turned);
}

// Buffers are seen in the weights' order, and encoded as flattened.
TEST_F(GroupedStatesTest, WhoSeesParametersTurnsNoneOfWhatIsFlattened) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  const std::shared_ptr<const CheckpointSource> stored = Stored(kArgsOfOneArray);
  const auto seen = kFormat.run->by_parameter(stored);
  ASSERT_THAT(seen, IsOk());
  EXPECT_EQ(*seen, stored);
}

TEST_F(GroupedStatesTest, WhatIsNotFlattenedHasTheWeightsOrder) {
  AddExperts({2, 2, 2}, {2, 2, 2}, "raw");
  EXPECT_EQ(ReadWhole(*Seen(kArgsOfOneArray), kMoment), CountUp({2, 2, 2}));
}

TEST_F(GroupedStatesTest, DamagedArgumentsBarOnlySquareStates) {
  AddExperts({2, 2, 2}, {2, 2, 2});
  const auto seen = Seen(std::nullopt);
  EXPECT_EQ(seen->index().FindTensor(kMoment), nullptr);
  const Status refused = seen->index().CheckDeliverable(kMoment);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(refused.first().file, "common.pt");
  EXPECT_THAT(refused.first().message, HasSubstr("order"));
  EXPECT_EQ(ReadWhole(*seen, kWeight), CountUp({2, 2, 2}));
}

TEST_F(GroupedStatesTest, DamagedArgumentsDoNotMatterWhereTheShapeShowsIt) {
  AddExperts({2, 3, 2}, {2, 2, 3});
  const auto seen = Seen(std::nullopt);
  EXPECT_THAT(ShapeOf(*seen, kMoment), ElementsAre(2, 3, 2));
  EXPECT_TRUE(seen->index().problems().empty());
}

// So a copy under the same keys, in any format, has the weights' order.
TEST(GroupedStatesFolderTest, AFolderIsOpenedInTheWeightsOrder) {
  const std::string moment = "chained_1." + kMoment;
  const auto plan = dcp::PlanDcp({{.key = kWeight, .dtype = DType::kFloat32, .shape = {1, 2, 6, 4}},
                                  {.key = moment, .dtype = DType::kFloat32, .shape = {1, 2, 4, 6}}},
                                 {.stores_paths = false, .flattened = {{moment, {1, 2, 1, 1}}}});
  ASSERT_THAT(plan, IsOk());
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/ck"), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage, "/ck/metadata.json",
                             AsBytes(std::string_view(R"({"sharded_backend": "torch_dist"})"))),
              IsOk());
  for (std::uint32_t f = 0; f < plan->files.size(); ++f) {
    Bytes content(plan->files[f].size_bytes);
    for (const WriteLiteral& literal : plan->literals) {
      if (literal.file != f) continue;
      std::ranges::copy(literal.bytes,
                        content.begin() + static_cast<std::ptrdiff_t>(literal.offset_bytes));
    }
    ASSERT_THAT(WriteSmallFile(*storage, Path("/ck") / plan->files[f].name, content), IsOk());
  }
  const auto stored = Source::Open(*storage, "/ck");
  ASSERT_THAT(stored, IsOk());
  EXPECT_THAT(ShapeOf(**stored, moment), ElementsAre(1, 2, 4, 6));
  const auto opened = OpenSource(*storage, "/ck");
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT(ShapeOf(**opened, moment), ElementsAre(1, 2, 6, 4));
  const GlobalTensor& tensor = *(*opened)->index().FindTensor(moment);
  for (const Chunk& chunk : (*opened)->index().chunks(tensor)) {
    EXPECT_THAT((*opened)->index().encoding(chunk), HasSubstr("+flat"));
    EXPECT_THAT((*opened)->index().encoding(chunk), Not(::testing::EndsWith("+flat")));
  }
}

}  // namespace
}  // namespace ckpt::torch_dist
