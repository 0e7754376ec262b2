#include "trainer/data/token_windows.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;

using Tokens = std::vector<std::int32_t>;

class InMemory final : public DocumentSet {
 public:
  explicit InMemory(std::vector<Tokens> documents) : documents_(std::move(documents)) {}
  std::int64_t num_documents() const override {
    return static_cast<std::int64_t>(documents_.size());
  }
  std::int64_t DocumentLength(std::int64_t d) const override {
    return static_cast<std::int64_t>(documents_[static_cast<std::size_t>(d)].size());
  }
  Status ReadTokens(std::int64_t d, std::int64_t begin,
                    std::span<std::int32_t> out) const override {
    const Tokens& document = documents_[static_cast<std::size_t>(d)];
    CKPT_CHECK(begin >= 0 && static_cast<std::size_t>(begin) + out.size() <= document.size());
    std::copy_n(document.begin() + begin, out.size(), out.begin());
    return OkStatus();
  }

 private:
  std::vector<Tokens> documents_;
};

Result<std::unique_ptr<SampleSet>> Windows(std::vector<Tokens> documents,
                                           const WindowOptions& options) {
  return MakeTokenWindows(std::make_shared<InMemory>(std::move(documents)), options);
}

TEST(TokenWindowsTest, RunOverTheEndsOfDocuments) {
  const auto windows =
      Windows({{1, 2, 3}, {}, {4}, {5, 6, 7, 8, 9}}, {.seq_length = 3, .shuffle_documents = false});
  ASSERT_THAT(windows, IsOk());
  ASSERT_EQ((*windows)->num_samples(),
            2);  // 8 of 9 tokens have a successor: two windows, and two left over
  EXPECT_EQ(*(*windows)->ReadSample(0), (Sequence{.tokens = {1, 2, 3}, .labels = {2, 3, 4}}));
  EXPECT_EQ(*(*windows)->ReadSample(1), (Sequence{.tokens = {4, 5, 6}, .labels = {5, 6, 7}}));
}

TEST(TokenWindowsTest, LearnNothingBehindTheMaskedToken) {
  const auto windows =
      Windows({{1, 2, 0}, {3, 0}}, {.seq_length = 4,
                                    .shuffle_documents = false,
                                    .ends = DocumentEnds{.token = 0, .mask_loss = true}});
  ASSERT_THAT(windows, IsOk());
  EXPECT_EQ(*(*windows)->ReadSample(0),
            (Sequence{.tokens = {1, 2, 0, 3}, .labels = {2, 0, kNoLabel, 0}}));
}

// What Megatron's get_ltor_masks_and_position_ids gives: the end token belongs to what it ends.
TEST(TokenWindowsTest, RestartPositionsAndAttentionAfterEnds) {
  const auto read = [](const DocumentEnds& ends) {
    const auto windows = Windows({{1, 2, 0}, {0}, {3, 4, 0}, {5, 6, 7, 8}},
                                 {.seq_length = 5, .shuffle_documents = false, .ends = ends});
    EXPECT_THAT(windows, IsOk());
    return std::vector<Sequence>{*(*windows)->ReadSample(0), *(*windows)->ReadSample(1)};
  };
  const std::vector<Sequence> both =
      read({.token = 0, .reset_positions = true, .reset_attention = true});
  EXPECT_EQ(both[0], (Sequence{.tokens = {1, 2, 0, 0, 3},
                               .labels = {2, 0, 0, 3, 4},
                               .positions = {0, 1, 2, 0, 0},
                               .lengths = {3, 1, 1}}));
  // A window begins within a document; one that ends with it has nothing behind it.
  EXPECT_EQ(both[1], (Sequence{.tokens = {4, 0, 5, 6, 7},
                               .labels = {0, 5, 6, 7, 8},
                               .positions = {0, 1, 0, 1, 2},
                               .lengths = {2, 3}}));
  const std::vector<Sequence> positions = read({.token = 0, .reset_positions = true});
  EXPECT_EQ(positions[0].positions, both[0].positions);
  EXPECT_THAT(positions[0].lengths, ::testing::IsEmpty());
  const std::vector<Sequence> attention = read({.token = 7, .reset_attention = true});
  EXPECT_THAT(attention[0].positions, ::testing::IsEmpty());
  EXPECT_THAT(attention[0].lengths, ElementsAre(5));
  EXPECT_THAT(attention[1].lengths, ElementsAre(5));  // the end token is the last
}

TEST(TokenWindowsTest, NeedOneTokenMoreThanTheirLength) {
  EXPECT_THAT(Windows({{1, 2}, {3}}, {.seq_length = 3}), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(Windows({{1, 2}, {3, 4}}, {.seq_length = 3}), IsOk());
  EXPECT_THAT(Windows({}, {.seq_length = 1}), FailsWith(ErrorKind::kUsage));
}

// Documents of many lengths, empty ones too: windows are what cutting the whole stream gives, and
// the stream is the documents, each whole and once.
TEST(TokenWindowsTest, EqualTheStreamCutByHand) {
  const std::uint64_t seed = 20261121;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  for (int trial = 0; trial < 60; ++trial) {
    // Every token is a document's number and the place in it.
    std::vector<Tokens> documents(rng() % 400 + 1);
    std::size_t total = 0;
    for (std::size_t d = 0; d < documents.size(); ++d) {
      const std::size_t length = rng() % 3 == 0 ? 0 : rng() % 40;
      for (std::size_t i = 0; i < length; ++i)
        documents[d].push_back(static_cast<std::int32_t>(d * 64 + i));
      total += length;
    }
    const auto seq_length = static_cast<std::int64_t>(rng() % 70 + 1);
    const bool shuffle = trial % 2 == 0;
    const auto windows = Windows(
        documents, {.seq_length = seq_length, .shuffle_documents = shuffle, .seed = rng() % 100});
    if (static_cast<std::int64_t>(total) <= seq_length) {
      ASSERT_THAT(windows, FailsWith(ErrorKind::kUsage));
      continue;
    }
    ASSERT_EQ((*windows)->num_samples(), (static_cast<std::int64_t>(total) - 1) / seq_length);
    Tokens stream;
    for (std::int64_t i = 0; i < (*windows)->num_samples(); ++i) {
      const Sequence window = *(*windows)->ReadSample(i);
      if (!stream.empty()) {
        ASSERT_EQ(stream.back(), window.tokens[0]);  // the last label
      }
      stream.insert(stream.end(), window.tokens.begin() + (stream.empty() ? 0 : 1),
                    window.tokens.end());
      stream.push_back(window.labels.back());
      ASSERT_TRUE(
          std::equal(window.tokens.begin() + 1, window.tokens.end(), window.labels.begin()));
    }
    std::map<std::int32_t, int> begun;
    for (std::size_t i = 0; i < stream.size(); ++i) {
      const bool begins = stream[i] % 64 == 0;
      if (begins) ++begun[stream[i] / 64];
      if (i == 0) {
        ASSERT_TRUE(begins);
      } else if (begins) {
        const auto& previous = documents[static_cast<std::size_t>(stream[i - 1] / 64)];
        ASSERT_EQ(previous.back(), stream[i - 1]);  // whole
      } else {
        ASSERT_EQ(stream[i], stream[i - 1] + 1);
      }
    }
    for (const auto& [document, times] : begun) ASSERT_EQ(times, 1);
    if (!shuffle) {
      ASSERT_TRUE(std::ranges::is_sorted(stream));
    }
  }
}

TEST(TokenWindowsTest, TheSeedDecidesTheOrderOfDocuments) {
  std::vector<Tokens> documents;
  for (std::int32_t d = 0; d < 100; ++d) documents.push_back({d, d});
  const auto first = [&](std::uint64_t seed) {
    return Windows(documents, {.seq_length = 100, .seed = seed}).value()->ReadSample(0).value();
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
  EXPECT_FALSE(std::ranges::is_sorted(first(1).tokens));
}

}  // namespace
}  // namespace ckpt::trainer
