#include "trainer/comm/internal/roll_call.h"

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Clock = RollCall::Clock;
using Letters = std::vector<std::deque<Mailbox::Letter>>;  // of each rank

constexpr RollCall::Options kOptions = {.timeout = std::chrono::minutes(10),
                                        .answer_time = std::chrono::seconds(3)};

class MemoryMailbox final : public Mailbox {
 public:
  MemoryMailbox(int rank, Letters& letters) : rank_(rank), letters_(letters) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(letters_.size()); }
  void Send(int to, std::string_view text) override {
    letters_[static_cast<std::size_t>(to)].push_back({.from = rank_, .text = std::string(text)});
  }
  std::optional<Letter> Take() override {
    std::deque<Letter>& mine = letters_[static_cast<std::size_t>(rank_)];
    if (mine.empty()) return std::nullopt;
    Letter letter = std::move(mine.front());
    mine.pop_front();
    return letter;
  }

 private:
  const int rank_;
  Letters& letters_;
};

class RollCallTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;

  RollCallTest() : letters_(kRanks) {
    for (int rank = 0; rank < kRanks; ++rank) {
      calls_.push_back(
          std::make_unique<RollCall>(kOptions, std::make_unique<MemoryMailbox>(rank, letters_)));
      world_.push_back(Track(rank, "world", {0, 1, 2, 3}));
    }
  }

  std::shared_ptr<CallTrack> Track(int rank, const std::string& id, std::vector<int> members) {
    auto track = std::make_shared<CallTrack>(id, std::move(members));
    calls_[static_cast<std::size_t>(rank)]->Watch(track);
    return track;
  }
  CallTrack& World(int rank) { return *world_[static_cast<std::size_t>(rank)]; }

  // What the ranks say that look `after` from now;
  // each looks as often as letters go back and forth.
  std::vector<Status> Look(std::chrono::milliseconds after, const std::vector<int>& ranks) {
    std::vector<Status> said(kRanks);
    for (int round = 0; round < 3; ++round) {
      for (const int rank : ranks) {
        Status& mine = said[static_cast<std::size_t>(rank)];
        if (mine.ok()) mine = calls_[static_cast<std::size_t>(rank)]->Look(start_ + after);
      }
    }
    return said;
  }

  const Clock::time_point start_ = Clock::now();
  Letters letters_;
  std::vector<std::unique_ptr<RollCall>> calls_;
  std::vector<std::shared_ptr<CallTrack>> world_;
};

constexpr std::chrono::milliseconds kLate = std::chrono::minutes(11);
constexpr std::chrono::milliseconds kAnswered = kLate + std::chrono::seconds(4);

TEST_F(RollCallTest, NamesTheRankThatDoesNotAnswer) {
  for (const int rank : {0, 1, 3}) World(rank).Begin("an all-gather", 4000);
  EXPECT_THAT(Look(kLate, {0, 1, 3})[0], testing::IsOk());  // rank 2 has time to answer
  const Status said = Look(kAnswered, {0, 1, 3})[0];
  ASSERT_THAT(said, testing::FailsWith(ErrorKind::kSystem));
  EXPECT_EQ(said.first().message, "rank 2 is missing");
  EXPECT_EQ(said.first().expected,
            "an all-gather of 4000 bytes, call 1 of a group of 4 ranks, to end within 600 s");
  EXPECT_EQ(said.first().actual, "no answer from rank 2");
}

TEST_F(RollCallTest, OnlyOneOfThoseThatWaitSpeaks) {
  for (const int rank : {0, 1, 3}) World(rank).Begin("a barrier", 0);
  (void)Look(kLate, {3, 1, 0});
  const std::vector<Status> said = Look(kAnswered, {3, 1, 0});
  EXPECT_THAT(said[3], testing::FailsWith(ErrorKind::kSystem));  // asked first
  EXPECT_THAT(said[0], testing::IsOk());
  EXPECT_THAT(said[1], testing::IsOk());
}

TEST_F(RollCallTest, OfTwoThatAskAtOnceTheLowerSpeaks) {
  for (const int rank : {0, 1, 3}) World(rank).Begin("a barrier", 0);
  const auto ask = [&](std::size_t rank) { return calls_[rank]->Look(start_ + kLate); };
  ASSERT_THAT(ask(1), testing::IsOk());
  std::deque<Mailbox::Letter> from_second = std::exchange(letters_[0], {});
  ASSERT_THAT(ask(0), testing::IsOk());
  letters_[0] = std::move(from_second);
  const std::vector<Status> said = Look(kAnswered, {0, 1, 3});
  EXPECT_THAT(said[0], testing::FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(said[1], testing::IsOk());
}

TEST_F(RollCallTest, OthersSpeakIfTheOneThatAskedIsGone) {
  for (const int rank : {0, 1, 3}) World(rank).Begin("a barrier", 0);
  EXPECT_THAT(Look(kLate, {3, 1, 0})[3], testing::IsOk());  // and no more is heard of it
  const std::chrono::milliseconds later = kLate + std::chrono::seconds(10);
  (void)Look(later, {0, 1});
  const Status said = Look(later + std::chrono::seconds(4), {0, 1})[0];
  ASSERT_THAT(said, testing::FailsWith(ErrorKind::kSystem));
  EXPECT_EQ(said.first().message, "ranks 2, 3 are missing");
}

TEST_F(RollCallTest, NamesTheRankThatIsLateAtOnce) {
  for (const int rank : {0, 1, 2}) World(rank).Begin("a barrier", 0);
  const Status said = Look(kLate, {0, 1, 2, 3})[0];
  ASSERT_THAT(said, testing::FailsWith(ErrorKind::kSystem));
  EXPECT_EQ(said.first().message, "rank 3 is missing");
  EXPECT_EQ(said.first().actual, "at work, and not come to it: rank 3");
  EXPECT_THAT(said.first().hint, HasSubstr("distributed_timeout_minutes"));
}

// Rank 0 waits for rank 1, which waits for rank 3, which no rank of the first group knows.
TEST_F(RollCallTest, NamesTheRankAtTheEndOfAChain) {
  const auto first = Track(0, "world/1", {0, 1});
  Track(1, "world/1", {0, 1});
  const auto second = Track(1, "world/2", {1, 3});
  first->Begin("an all-gather", 8);
  second->Begin("a reduce-scatter", 16);
  (void)Look(kLate, {0, 1, 2});
  const Status said = Look(kAnswered, {0, 1, 2})[0];
  ASSERT_THAT(said, testing::FailsWith(ErrorKind::kSystem));
  EXPECT_EQ(said.first().message, "rank 3 is missing");
  EXPECT_THAT(said.first().actual,
              AllOf(HasSubstr("no answer from rank 3"), HasSubstr("rank 1 has not come to it"),
                    HasSubstr("in a reduce-scatter of 16 bytes, call 1 of a group of 2 ranks"),
                    Not(HasSubstr("rank 2"))));  // is not a member, and well
}

TEST_F(RollCallTest, RanksThatWaitForEachOtherAreToldFromMissingOnes) {
  const auto other = Track(1, "world/1", {0, 1});
  Track(0, "world/1", {0, 1});
  for (const int rank : {0, 2, 3}) World(rank).Begin("a barrier", 0);
  other->Begin("an exchange", 8);
  const Status said = Look(kLate, {0, 1, 2, 3})[0];
  ASSERT_THAT(said, testing::FailsWith(ErrorKind::kSystem));
  EXPECT_EQ(said.first().message, "ranks wait for each other");
  EXPECT_THAT(said.first().actual, HasSubstr("rank 1 has not come to it, and has waited"));
}

TEST_F(RollCallTest, ACallThatAllHaveComeToIsToldFromAMissingRank) {
  for (int rank = 0; rank < kRanks; ++rank) World(rank).Begin("a barrier", 0);
  const Status said = Look(kLate, {0, 1, 2, 3})[0];
  ASSERT_THAT(said, testing::FailsWith(ErrorKind::kSystem));
  EXPECT_EQ(said.first().actual, "every rank has come to it");
}

TEST_F(RollCallTest, ACallThatEndsInTimeIsNotAskedAbout) {
  World(0).Begin("a barrier", 0);
  EXPECT_THAT(Look(std::chrono::minutes(9), {0})[0], testing::IsOk());
  EXPECT_TRUE(letters_[1].empty());
  World(0).End();
  EXPECT_THAT(Look(kLate, {0})[0], testing::IsOk());
  EXPECT_TRUE(letters_[1].empty());
}

TEST_F(RollCallTest, ACallThatEndsAfterTheQuestionIsForgiven) {
  World(0).Begin("a barrier", 0);
  EXPECT_THAT(Look(kLate, {0})[0], testing::IsOk());
  EXPECT_FALSE(letters_[1].empty());
  World(0).End();
  EXPECT_THAT(Look(kAnswered, {0})[0], testing::IsOk());
}

TEST_F(RollCallTest, LettersThatMeanNothingAreIgnored) {
  World(0).Begin("a barrier", 0);
  for (const char* text : {"", "?", "?x", "+", "+1 world", "-9 elsewhere\n"}) {
    letters_[0].push_back({.from = 1, .text = text});
  }
  EXPECT_THAT(Look(std::chrono::minutes(1), {0})[0], testing::IsOk());
}

TEST(CallTrackTest, ACallWaitsFromTheEndOfTheOneBefore) {
  CallTrack track("world", {0, 1});
  EXPECT_FALSE(track.First());
  track.Begin("first", 0);
  track.Begin("second", 0);
  ASSERT_TRUE(track.First());
  EXPECT_EQ(track.First()->call.number, 1U);
  const auto before = CallTrack::Clock::now();
  track.End();
  ASSERT_TRUE(track.First());
  EXPECT_EQ(track.First()->call.number, 2U);
  EXPECT_GE(track.First()->since, before);
  EXPECT_EQ(track.num_begun(), 2U);
}

}  // namespace
}  // namespace ckpt::trainer
