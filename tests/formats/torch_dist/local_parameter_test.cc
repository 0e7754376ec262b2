// Parts of weights that single ranks have.
#include "formats/torch_dist/internal/local_parameter.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;

constexpr const char* kWordEmbeddings = "embedding.word_embeddings.weight";
constexpr const char* kOutputLayer = "output_layer.weight";
constexpr const char* kGateAndUp = "decoder.layers.mlp.linear_fc1.weight";

class LocalParametersTest : public ::testing::Test {
 protected:
  void Add(const std::string& key, const Dims& shape, const std::vector<Box>& chunks) {
    builder_.AddTensor(key, DType::kFloat32, shape);
    const FileId file = builder_.AddFile("f");
    const EncodingId raw = builder_.AddEncoding("raw");
    for (const Box& chunk : chunks) builder_.AddChunk(chunk, file, raw, 0, 4);
  }
  Result<std::vector<LocalParameter>> List(const RunRanks& ranks) {
    index_ = builder_.Build().value();
    return LocalParameters(index_, ranks);
  }
  // "0 of 2 [0:8, 0:4]" for every parameter.
  std::vector<std::string> Describe(const RunRanks& ranks) {
    const auto parameters = List(ranks);
    EXPECT_THAT(parameters, IsOk());
    std::vector<std::string> described;
    for (const LocalParameter& parameter : *parameters) {
      std::string& text =
          described.emplace_back(fmt::format("{} of {}", parameter.slice, parameter.num_slices));
      for (const Box& box : parameter.boxes) text += " " + FormatBox(box);
    }
    return described;
  }

  IndexBuilder builder_;
  CheckpointIndex index_;
};

Box Rows(std::int64_t first, std::int64_t behind) {
  return {.offsets = {first, 0}, .sizes = {behind - first, 4}};
}

// What the writer cuts by size: even parts that are not those of ranks, and uneven ones.
TEST_F(LocalParametersTest, AreThoseOfTheNamedRanksWhateverChunksThereAre) {
  const RunRanks two = {.are_named = true, .tensor = 2};
  for (const std::vector<Box>& chunks : {std::vector<Box>{Rows(0, 12)},
                                         {Rows(0, 3), Rows(3, 6), Rows(6, 9), Rows(9, 12)},
                                         {Rows(0, 5), Rows(5, 10), Rows(10, 12)}}) {
    builder_ = {};
    Add(kOutputLayer, {12, 4}, chunks);
    EXPECT_THAT(Describe(two),
                ElementsAre("0 of 2 " + FormatBox(Rows(0, 6)), "1 of 2 " + FormatBox(Rows(6, 12))));
  }
}

TEST_F(LocalParametersTest, HaveGateAndUpWhereTheArgumentsSayIt) {
  Add(kGateAndUp, {1, 8, 4}, {{.offsets = {0, 0, 0}, .sizes = {1, 8, 4}}});
  Add(kOutputLayer, {2, 4}, {Rows(0, 2)});
  const auto part = [](std::int64_t row) {
    return FormatBox(Box{.offsets = {0, row, 0}, .sizes = {1, 2, 4}});
  };
  EXPECT_THAT(Describe({.are_named = true, .tensor = 2, .expert_tensor = 2, .is_gated = true}),
              ElementsAre("0 of 2 " + part(0) + " " + part(4), "1 of 2 " + part(2) + " " + part(6),
                          "0 of 2 " + FormatBox(Rows(0, 1)), "1 of 2 " + FormatBox(Rows(1, 2))));
}

TEST_F(LocalParametersTest, AreChunksWhereNoArgumentSaysTheRanks) {
  Add(kOutputLayer, {12, 4}, {Rows(0, 4), Rows(4, 8), Rows(8, 12)});
  EXPECT_THAT(Describe({}),
              ElementsAre("0 of 3 " + FormatBox(Rows(0, 4)), "1 of 3 " + FormatBox(Rows(4, 8)),
                          "2 of 3 " + FormatBox(Rows(8, 12))));
}

TEST_F(LocalParametersTest, AreAllOrRowsOrChunksWhereTheDivisionIsNotKnown) {
  const std::string key = "decoder.layers.0.mixer.in_proj.weight";
  const std::vector<Box> chunks = {Rows(0, 4), Rows(4, 8), Rows(8, 12)};
  Add(key, {12, 4}, chunks);
  EXPECT_THAT(Describe({.are_named = true, .tensor = 3}),
              ElementsAre("0 of 1 " + FormatBox(Rows(0, 12)), "0 of 3 " + FormatBox(Rows(0, 4)),
                          "1 of 3 " + FormatBox(Rows(4, 8)), "2 of 3 " + FormatBox(Rows(8, 12))));
  builder_ = {};
  Add(key, {12, 4}, chunks);
  EXPECT_THAT(Describe({.are_named = true, .tensor = 2}),
              ElementsAre("0 of 1 " + FormatBox(Rows(0, 12)), "0 of 2 " + FormatBox(Rows(0, 6)),
                          "1 of 2 " + FormatBox(Rows(6, 12))));
  builder_ = {};
  Add(key, {12, 4}, chunks);
  EXPECT_THAT(Describe({.are_named = true, .tensor = 5}),
              ElementsAre("0 of 1 " + FormatBox(Rows(0, 12))));
}

// A few bytes of metadata declare them.
TEST_F(LocalParametersTest, HaveElements) {
  constexpr std::int64_t kLayers = 1 << 20;
  Add(kGateAndUp, {kLayers, 0, 4}, {{.offsets = {0, 0, 0}, .sizes = {kLayers, 0, 4}}});
  Add(kWordEmbeddings, {12, 4}, {Rows(0, 0)});
  Add(kOutputLayer, {0, 4}, {Rows(0, 0)});
  EXPECT_THAT(Describe({}), IsEmpty());
}

TEST_F(LocalParametersTest, AreNotMoreInAllThanAnyModelHas) {
  for (const bool are_named : {false, true}) {
    builder_ = {};
    const auto add = [&](const std::string& key, std::int64_t layers) {
      Add(key, {layers, 1}, {{.offsets = {0, 0}, .sizes = {layers, 1}}});
    };
    add("decoder.layers.few.layernorm.weight", 8);
    add("decoder.layers.many.layernorm.weight", 1 << 20);
    const auto parameters = List({.are_named = are_named});
    ASSERT_THAT(parameters, FailsWith(ErrorKind::kResource));
    EXPECT_THAT(parameters.status().first().tensor, HasSubstr("many"));
    EXPECT_EQ(parameters.status().first().expected, "at most 1048576 parts in all");
  }
}

}  // namespace
}  // namespace ckpt::torch_dist
