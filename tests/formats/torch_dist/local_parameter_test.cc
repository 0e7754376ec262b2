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
constexpr const char* kOfExperts1 = "decoder.layers.mlp.experts.experts.linear_fc1.weight";
constexpr const char* kOfExperts2 = "decoder.layers.mlp.experts.experts.linear_fc2.weight";

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
  // "0 of 2 [0:8, 0:4]" for every parameter, and "turned" behind one that is.
  std::vector<std::string> Describe(const RunRanks& ranks) {
    const auto parameters = List(ranks);
    EXPECT_THAT(parameters, IsOk());
    std::vector<std::string> described;
    for (const LocalParameter& parameter : *parameters) {
      std::string& text =
          described.emplace_back(fmt::format("{} of {}", parameter.slice, parameter.num_slices));
      for (const Box& box : parameter.boxes) text += " " + FormatBox(box);
      if (parameter.is_turned) text += " turned";
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

TEST_F(LocalParametersTest, AreArraysOfARanksExpertsToo) {
  Add(kOfExperts1, {2, 4, 8, 3}, {{.offsets = {0, 0, 0, 0}, .sizes = {2, 4, 8, 3}}});
  RunRanks ranks = {
      .are_named = true, .expert = 2, .expert_tensor = 2, .is_gated = true, .joins_experts = true};
  std::vector<std::string> arrays = Describe(ranks);
  EXPECT_EQ(std::erase_if(arrays, [](const auto& text) { return !text.ends_with("turned"); }), 16U);
  std::vector<std::string> expected;
  for (const std::int64_t first_expert : {0, 2}) {
    for (const std::int64_t layer : {0, 1}) {
      for (const std::int64_t rank : {0, 1}) {
        const auto rows = [&](std::int64_t first) {
          return FormatBox(Box{.offsets = {layer, first_expert, first, 0}, .sizes = {1, 2, 2, 3}});
        };
        expected.push_back(
            fmt::format("{} of 2 {} {} turned", rank, rows(2 * rank), rows(4 + 2 * rank)));
      }
    }
  }
  EXPECT_EQ(arrays, expected);
  ranks.expert = 3;  // cannot have equal numbers of experts
  EXPECT_THAT(Describe(ranks), ::testing::Not(::testing::Contains(HasSubstr("turned"))));
  ranks = {.are_named = true, .joins_experts = false};
  EXPECT_THAT(Describe(ranks), ::testing::Not(::testing::Contains(HasSubstr("turned"))));
}

// GroupedMLP alone stores several experts in one.
TEST_F(LocalParametersTest, AreArraysOfTheExpertsInAChunkIfNothingElseIsSaid) {
  const auto experts = [](std::int64_t first, std::int64_t count) {
    return Box{.offsets = {0, first, 0, 0}, .sizes = {1, count, 3, 8}};
  };
  for (const bool are_named : {false, true}) {
    builder_ = {};
    Add(kOfExperts2, {1, 4, 3, 8}, {experts(0, 2), experts(2, 2)});
    const RunRanks ranks = {.are_named = are_named, .expert = 2};
    EXPECT_THAT(
        Describe(ranks),
        ::testing::AllOf(::testing::Contains("0 of 1 " + FormatBox(experts(0, 2)) + " turned"),
                         ::testing::Contains("0 of 1 " + FormatBox(experts(2, 2)) + " turned"),
                         ::testing::Contains("0 of 1 " + FormatBox(experts(3, 1)))));
    builder_ = {};
    Add(kOfExperts2, {1, 2, 3, 8}, {experts(0, 1), experts(1, 1)});
    EXPECT_THAT(Describe(ranks), ElementsAre("0 of 1 " + FormatBox(experts(0, 1)),
                                             "0 of 1 " + FormatBox(experts(1, 1))));
  }
}

// Of an array of the rows 2 and 3 of a gate and of up, [experts, columns, rows], and of a fc1 with
// the same rows.
TEST_F(LocalParametersTest, AreCutIntoBoxesAnywhere) {
  const std::vector<Box> boxes = {{.offsets = {0, 1, 2, 0}, .sizes = {1, 2, 2, 3}},
                                  {.offsets = {0, 1, 6, 0}, .sizes = {1, 2, 2, 3}}};
  const std::vector<std::int64_t> rows = {2, 3, 6, 7};
  std::vector<Dims> turned;
  for (const std::int64_t expert : {1, 2}) {
    for (const std::int64_t column : {0, 1, 2}) {
      for (const std::int64_t row : rows) turned.push_back({0, expert, row, column});
    }
  }
  std::vector<Dims> plain;
  for (const std::int64_t half : {2, 6}) {
    for (const std::int64_t expert : {1, 2}) {
      for (const std::int64_t row : {half, half + 1}) {
        for (const std::int64_t column : {0, 1, 2}) plain.push_back({0, expert, row, column});
      }
    }
  }
  for (const bool is_turned : {false, true}) {
    const LocalParameter parameter = {
        .name = kOfExperts1, .boxes = boxes, .is_turned = is_turned, .elems = 24};
    const std::vector<Dims>& memory = is_turned ? turned : plain;
    for (std::int64_t begin = 0; begin <= parameter.elems; ++begin) {
      for (std::int64_t end = begin; end <= parameter.elems; ++end) {
        SCOPED_TRACE(fmt::format("{} [{}, {})", is_turned, begin, end));
        std::vector<Dims> found(memory.size());
        for (const LocalPiece& piece : CutParameter(parameter, begin, end)) {
          const Dims strides = ContiguousStrides(piece.box.sizes);
          for (std::int64_t i = 0; i < NumElements(piece.box.sizes); ++i) {
            std::int64_t elem = piece.first_elem;
            Dims at = piece.box.offsets;
            for (std::size_t d = 0; d < at.size(); ++d) {
              const std::int64_t step = i / strides[d] % piece.box.sizes[d];
              at[d] += step;
              elem += step * piece.strides[d];
            }
            ASSERT_TRUE(begin <= elem && elem < end);
            Dims& place = found[static_cast<std::size_t>(elem)];
            EXPECT_TRUE(place.empty()) << elem;
            place = at;
          }
        }
        for (std::int64_t elem = begin; elem < end; ++elem) {
          const auto e = static_cast<std::size_t>(elem);
          EXPECT_EQ(found[e], memory[e]);
        }
      }
    }
  }
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
