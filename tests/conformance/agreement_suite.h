// What ranks agree on, over any HostGroup. A backend instantiates AgreementSuite with its
// worlds.
#ifndef CKPT_TESTS_CONFORMANCE_AGREEMENT_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_AGREEMENT_SUITE_H_

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/collectives_fixture.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/agreement.h"

namespace ckpt::trainer {

class AgreementSuite : public ::testing::TestWithParam<WorldCase> {
 protected:
  void OnEveryRank(const std::function<void(HostGroup& world)>& body) {
    EXPECT_THAT(GetParam().run([&](HostGroup& world) {
      body(world);
      return OkStatus();
    }),
                ckpt::testing::IsOk());
  }
};

// Of unequal lengths, empty ones and bytes of any value among them.
TEST_P(AgreementSuite, ExchangeTextsGivesEveryRankEveryText) {
  const auto text_of = [](int rank, int round) {
    const auto length = static_cast<std::size_t>(rank * 7919 * round);
    return std::string(length, static_cast<char>(rank)) + (round == 1 && rank == 1 ? "" : "\0x");
  };
  OnEveryRank([&](HostGroup& world) {
    for (int round = 0; round < 4; ++round) {
      const auto texts = ExchangeTexts(world, text_of(world.rank(), round));
      ASSERT_THAT(texts, ckpt::testing::IsOk());
      ASSERT_EQ(texts->size(), static_cast<std::size_t>(world.size()));
      for (int rank = 0; rank < world.size(); ++rank) {
        EXPECT_EQ((*texts)[static_cast<std::size_t>(rank)], text_of(rank, round));
      }
    }
    EXPECT_THAT(ExchangeTexts(world, ""), ckpt::testing::IsOkAndHolds(std::vector<std::string>(
                                              static_cast<std::size_t>(world.size()))));
  });
}

// Of no bytes, of less than what is sent at a time, and of more; whatever the others had.
TEST_P(AgreementSuite, TakeTextOfRank0GivesEveryRankItsText) {
  OnEveryRank([](HostGroup& world) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{1000}, std::size_t{2'500'000}}) {
      std::string expected(length, 'a');
      if (length > 0) expected.back() = 'z';
      std::string text = world.rank() == 0
                             ? expected
                             : std::string(static_cast<std::size_t>(world.rank()) * 70'000, 'b');
      ASSERT_THAT(TakeTextOfRank0(world, text), ckpt::testing::IsOk());
      EXPECT_TRUE(text == expected) << length << " bytes on rank " << world.rank();
    }
  });
}

TEST_P(AgreementSuite, ASeparateGroupHasTheSameRanks) {
  OnEveryRank([](HostGroup& world) {
    const auto separate = world.Separate();
    ASSERT_THAT(separate, ckpt::testing::IsOk());
    EXPECT_EQ((*separate)->rank(), world.rank());
    const auto texts = ExchangeTexts(**separate, std::to_string(world.rank()));
    ASSERT_THAT(texts, ckpt::testing::IsOk());
    ASSERT_EQ(texts->size(), static_cast<std::size_t>(world.size()));
    for (int rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ((*texts)[static_cast<std::size_t>(rank)], std::to_string(rank));
    }
  });
}

TEST_P(AgreementSuite, AgreeOnGivesTheFailedRankItsErrorAndTheOthersItsName) {
  OnEveryRank([](HostGroup& world) {
    EXPECT_THAT(AgreeOn(world, OkStatus()), ckpt::testing::IsOk());
    for (int failing = 0; failing < world.size(); ++failing) {
      const bool fails = world.rank() == failing;
      const Status agreed =
          AgreeOn(world, fails ? Error(ErrorKind::kNoSpace, "the disk is full") : OkStatus());
      if (fails) {
        EXPECT_THAT(agreed, ckpt::testing::FailsWith(ErrorKind::kNoSpace));
        continue;
      }
      EXPECT_THAT(agreed, ckpt::testing::FailsWith(ErrorKind::kCancelled));
      EXPECT_THAT(agreed.ToString(),
                  ::testing::HasSubstr("rank " + std::to_string(failing) + " failed"));
      EXPECT_THAT(agreed.ToString(), ::testing::HasSubstr("the disk is full"));
    }
    // All of them.
    EXPECT_THAT(AgreeOn(world, Error(ErrorKind::kIo, "mine")),
                ckpt::testing::FailsWith(ErrorKind::kIo));
  });
}

TEST_P(AgreementSuite, HoldsEverywhereOnlyWhereItHoldsOnEveryRank) {
  OnEveryRank([](HostGroup& world) {
    EXPECT_THAT(HoldsEverywhere(world, true), ckpt::testing::IsOkAndHolds(true));
    EXPECT_THAT(HoldsEverywhere(world, false), ckpt::testing::IsOkAndHolds(false));
    for (int rank = 0; rank < world.size(); ++rank) {
      EXPECT_THAT(HoldsEverywhere(world, world.rank() != rank), ckpt::testing::IsOkAndHolds(false));
    }
  });
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_AGREEMENT_SUITE_H_
