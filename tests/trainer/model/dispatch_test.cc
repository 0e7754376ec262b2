#include "trainer/model/dispatch.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/model/rank_device.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::testing {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using trainer::Dispatcher;
using trainer::DispatchSpec;
using trainer::DropPolicy;
using trainer::HostGroup;
using trainer::QueueMode;
using trainer::Tensor;

constexpr std::int64_t kNumExperts = 8;
constexpr std::int64_t kTopK = 3;
constexpr std::int64_t kHidden = 2;
constexpr DType kType = DType::kFloat32;

// The experts of one rank's tokens, K numbers a token.
using Choices = std::vector<double>;

Choices RandomChoices(std::uint64_t seed, std::int64_t tokens) {
  std::mt19937_64 random(seed);
  Choices choices;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<double> experts(kNumExperts);
    std::iota(experts.begin(), experts.end(), 0);
    std::shuffle(experts.begin(), experts.end(), random);
    choices.insert(choices.end(), experts.begin(), experts.begin() + kTopK);
  }
  return choices;
}

// One rank with a routing. Values say where they come from: token t of rank r is 100·r + t.
class RoutedRank {
 public:
  RoutedRank(Dispatcher kind, DispatchSpec spec, HostGroup& group,
             const trainer::HostDeviceOptions& device = {})
      : rank_(device),
        context_(rank_.Context(kType, 1, 0)),
        group_(rank_.CollectivesOf(group)),
        counts_({.dropped = rank_.Zeros(DType::kInt64, {1}),
                 .overflows = rank_.Zeros(DType::kInt64, {1})}) {
    spec.num_experts = kNumExperts;
    spec.topk = kTopK;
    dispatch_ = trainer::MakeDispatch(kind, spec, group_.get());
  }
  RoutedRank(const RoutedRank&) = delete;
  RoutedRank& operator=(const RoutedRank&) = delete;
  ~RoutedRank() { (void)rank_.queue().Synchronize(); }

  // Weights are 0 unless they are given.
  void Route(const Choices& choices, std::vector<double> weights = {}) {
    tokens_ = static_cast<std::int64_t>(choices.size()) / kTopK;
    weights.resize(choices.size());
    const auto padding = std::ranges::count(choices, -1) / kTopK;
    const Tensor experts = rank_.Put(choices, DType::kInt32, {tokens_, kTopK});
    dispatch_->Plan(context_, tokens_, tokens_ - padding);
    dispatch_->Route(context_, experts, rank_.Put(weights, kType, {tokens_, kTopK}), counts_);
  }

  [[nodiscard]] std::int64_t max_rows() const { return dispatch_->max_rows(); }
  [[nodiscard]] std::vector<double> offsets() { return rank_.Read(dispatch_->offsets()); }
  [[nodiscard]] std::size_t num_rows() {
    return static_cast<std::size_t>(rank_.Read(dispatch_->count())[0]);
  }
  [[nodiscard]] double dropped() { return rank_.Read(counts_.dropped)[0]; }
  [[nodiscard]] double overflows() { return rank_.Read(counts_.overflows)[0]; }

  // Rows in use. Others are not written.
  std::vector<double> ToExperts(const std::vector<double>& x) {
    const Tensor rows = rank_.Nans(kType, {max_rows(), kHidden});
    dispatch_->ToExperts(context_, rank_.Put(x, kType, {tokens_, kHidden}), {}, rows, {});
    return InUse(rows, kHidden);
  }
  // The sums of rows in use. Others are not read.
  std::vector<double> FromExperts(const std::vector<double>& rows) {
    const Tensor y = rank_.Nans(kType, {tokens_, kHidden});
    dispatch_->FromExperts(context_, PutRows(rows, kHidden), {}, y, {});
    return rank_.Read(y);
  }
  // The same with weights: of the rows, and back.
  std::vector<double> WeightsToExperts(const std::vector<double>& weights) {
    const Tensor x = rank_.Zeros(kType, {tokens_, kHidden});
    const Tensor rows = rank_.Nans(kType, {max_rows(), kHidden});
    const Tensor row_weights = rank_.Nans(kType, {max_rows()});
    dispatch_->ToExperts(context_, x, rank_.Put(weights, kType, {tokens_, kTopK}), rows,
                         row_weights);
    EXPECT_THAT(InUse(rows, kHidden), Each(0));
    return InUse(row_weights, 1);
  }
  std::vector<double> WeightsFromExperts(const std::vector<double>& row_weights) {
    const Tensor y = rank_.Nans(kType, {tokens_, kHidden});
    const Tensor weights = rank_.Nans(kType, {tokens_, kTopK});
    const Tensor rows = PutRows(std::vector<double>(row_weights.size() * kHidden), kHidden);
    dispatch_->FromExperts(context_, rows, PutRows(row_weights, 1).Reshape({max_rows()}), y,
                           weights);
    EXPECT_THAT(rank_.Read(y), Each(0));
    return rank_.Read(weights);
  }

 private:
  std::vector<double> InUse(const Tensor& rows, std::int64_t columns) {
    std::vector<double> values = rank_.Read(rows);
    const std::size_t size = num_rows() * static_cast<std::size_t>(columns);
    for (std::size_t i = size; i < values.size(); ++i) EXPECT_TRUE(std::isnan(values[i]));
    values.resize(size);
    return values;
  }
  Tensor PutRows(std::vector<double> values, std::int64_t columns) {
    values.resize(static_cast<std::size_t>(max_rows() * columns), std::nan(""));
    return rank_.Put(values, kType, {max_rows(), columns});
  }

  RankDevice rank_;
  trainer::BlockContext context_;
  const std::unique_ptr<trainer::Collectives> group_;
  trainer::DispatchCounts counts_;
  std::int64_t tokens_ = 0;
  std::unique_ptr<trainer::Dispatch> dispatch_;
};

std::vector<double> TokenNames(int rank, std::int64_t tokens) {
  std::vector<double> names;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < kHidden; ++i)
      names.push_back(100.0 * rank + static_cast<double>(t));
  }
  return names;
}

// The rows that `rank` of `choices.size()` should get, one number each, and where each (expert,
// source) of them begins.
struct Expected {
  std::vector<double> rows;
  std::vector<double> offsets = {0};
};
Expected ExpectedRows(const std::vector<Choices>& choices, int rank, bool separates_sources) {
  Expected expected;
  const std::int64_t held = kNumExperts / static_cast<std::int64_t>(choices.size());
  for (std::int64_t expert = rank * held; expert < (rank + 1) * held; ++expert) {
    for (std::size_t source = 0; source < choices.size(); ++source) {
      for (std::size_t slot = 0; slot < choices[source].size(); ++slot) {
        if (choices[source][slot] != static_cast<double>(expert)) continue;
        expected.rows.push_back(100.0 * static_cast<double>(source) +
                                static_cast<double>(slot / kTopK));
      }
      if (separates_sources || source + 1 == choices.size()) {
        expected.offsets.push_back(static_cast<double>(expected.rows.size()));
      }
    }
  }
  return expected;
}

struct DispatchCase {
  std::string name;
  Dispatcher kind = Dispatcher::kAllToAll;
  int ranks = 1;
  bool separates_sources = false;
  trainer::HostDeviceOptions device = {};
};
void PrintTo(const DispatchCase& dispatch, std::ostream* os) { *os << dispatch.name; }

std::vector<DispatchCase> DispatchCases() {
  std::vector<DispatchCase> cases;
  for (const int ranks : {1, 2, 4, 8}) {
    for (const bool on_threads : {false, true}) {
      const std::string suffix = std::to_string(ranks) + (on_threads ? "OnThreads" : "");
      const trainer::HostDeviceOptions device{
          .queues = on_threads ? QueueMode::kThreads : QueueMode::kInline,
          .delay_seed = on_threads ? 3U : 0U};
      cases.push_back({"AllToAll" + suffix, Dispatcher::kAllToAll, ranks, false, device});
      cases.push_back({"AllToAllBySource" + suffix, Dispatcher::kAllToAll, ranks, true, device});
      cases.push_back({"Flex" + suffix, Dispatcher::kFlex, ranks, false, device});
      cases.push_back({"FlexBySource" + suffix, Dispatcher::kFlex, ranks, true, device});
      cases.push_back({"AllGather" + suffix, Dispatcher::kAllGather, ranks, false, device});
    }
  }
  return cases;
}

class DispatchTest : public ::testing::TestWithParam<DispatchCase> {
 protected:
  // Runs `body(rank, rank number)` after routing `choices`.
  template <typename Body>
  void OnRanks(const std::vector<Choices>& choices, const Body& body) {
    ASSERT_EQ(choices.size(), static_cast<std::size_t>(GetParam().ranks));
    EXPECT_THAT(trainer::RunRanks(GetParam().ranks,
                                  [&](HostGroup& group) -> Status {
                                    RoutedRank rank(
                                        GetParam().kind,
                                        {.separates_sources = GetParam().separates_sources}, group,
                                        GetParam().device);
                                    rank.Route(choices[static_cast<std::size_t>(group.rank())]);
                                    body(rank, group.rank());
                                    return OkStatus();
                                  }),
                IsOk());
  }
  [[nodiscard]] static std::vector<Choices> SomeChoices(std::int64_t tokens) {
    std::vector<Choices> choices;
    for (int rank = 0; rank < GetParam().ranks; ++rank) {
      choices.push_back(RandomChoices(static_cast<std::uint64_t>(rank), tokens));
    }
    return choices;
  }
  static void ExpectRows(RoutedRank& rank, int number, const std::vector<Choices>& choices) {
    const Expected want = ExpectedRows(choices, number, GetParam().separates_sources);
    const auto tokens =
        static_cast<std::int64_t>(choices[static_cast<std::size_t>(number)].size()) / kTopK;
    EXPECT_EQ(rank.offsets(), want.offsets);
    EXPECT_EQ(rank.num_rows(), want.rows.size());
    EXPECT_EQ(rank.overflows(), 0);
    std::vector<double> firsts;
    const std::vector<double> rows = rank.ToExperts(TokenNames(number, tokens));
    for (std::size_t i = 0; i < rows.size(); i += kHidden) firsts.push_back(rows[i]);
    EXPECT_EQ(firsts, want.rows);
  }
};

TEST_P(DispatchTest, RowsComeByExpertThenSourceThenToken) {
  const std::vector<Choices> choices = SomeChoices(7);
  OnRanks(choices, [&](RoutedRank& rank, int number) { ExpectRows(rank, number, choices); });
}

TEST_P(DispatchTest, WhatComesBackIsTheSumOfATokensRows) {
  const std::vector<Choices> choices = SomeChoices(5);
  OnRanks(choices, [&](RoutedRank& rank, int number) {
    const std::vector<double> x = TokenNames(number, 5);
    std::vector<double> want = x;
    for (double& value : want) value *= kTopK;
    EXPECT_EQ(rank.FromExperts(rank.ToExperts(x)), want);
  });
}

TEST_P(DispatchTest, WeightsGoWithTheirRowsAndBack) {
  const std::vector<Choices> choices = SomeChoices(5);
  OnRanks(choices, [&](RoutedRank& rank, int number) {
    // Every slot's weight names its expert.
    const Choices& mine = choices[static_cast<std::size_t>(number)];
    const std::vector<double> rows = rank.WeightsToExperts(mine);
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    std::vector<double> slots(mine.size());
    std::iota(slots.begin(), slots.end(), 1 + 100 * number);
    EXPECT_EQ(rank.WeightsFromExperts(rank.WeightsToExperts(slots)), slots);
  });
}

TEST_P(DispatchTest, EveryTokenToTheLastExperts) {
  Choices choice;
  for (int t = 0; t < 6; ++t) choice.insert(choice.end(), {7, 5, 6});
  const std::vector<Choices> choices(static_cast<std::size_t>(GetParam().ranks), choice);
  OnRanks(choices, [&](RoutedRank& rank, int number) {
    ExpectRows(rank, number, choices);
    const std::int64_t held = kNumExperts / GetParam().ranks;
    EXPECT_EQ(rank.num_rows() == 0, (number + 1) * held <= 5);
    // Whoever got nothing still takes part.
    EXPECT_EQ(rank.FromExperts(rank.ToExperts(TokenNames(number, 6)))[0], 100.0 * number * kTopK);
    EXPECT_EQ(rank.WeightsFromExperts(rank.WeightsToExperts(choice)), choice);
  });
}

TEST_P(DispatchTest, NoTokensAtAll) {
  const std::vector<Choices> choices(static_cast<std::size_t>(GetParam().ranks));
  OnRanks(choices, [&](RoutedRank& rank, int) {
    EXPECT_EQ(rank.max_rows(), 0);
    EXPECT_THAT(rank.offsets(), Each(0));
    EXPECT_THAT(rank.FromExperts(rank.ToExperts({})), IsEmpty());
    EXPECT_THAT(rank.WeightsFromExperts(rank.WeightsToExperts({})), IsEmpty());
  });
}

TEST_P(DispatchTest, ARoutingReplacesTheOneBefore) {
  const std::vector<Choices> choices = SomeChoices(9);
  const std::vector<Choices> later = SomeChoices(4);
  OnRanks(choices, [&](RoutedRank& rank, int number) {
    rank.Route(later[static_cast<std::size_t>(number)]);
    ExpectRows(rank, number, later);
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, DispatchTest, ::testing::ValuesIn(DispatchCases()),
                         [](const auto& test) { return test.param.name; });

// The most rows that can come have room, and with a limit no more than that.
TEST_P(DispatchTest, HasRoomForEveryRouting) {
  Choices choice;
  for (int t = 0; t < 6; ++t) choice.insert(choice.end(), {0, 1, 2});
  const std::vector<Choices> choices(static_cast<std::size_t>(GetParam().ranks), choice);
  const std::int64_t held = kNumExperts / GetParam().ranks;
  OnRanks(choices, [&](RoutedRank& rank, int number) {
    EXPECT_EQ(rank.max_rows(), GetParam().ranks * 6 * std::min(kTopK, held));
    if (number == 0) {
      EXPECT_EQ(rank.num_rows(), static_cast<std::size_t>(rank.max_rows()));
    }
  });
}

TEST_P(DispatchTest, CountsRowsThatExceedTheLimit) {
  if (GetParam().ranks == 1) return;
  // The mean load is 3·8 rows a rank. The first rank gets all of its own tokens, and those of
  // the others that are asked for.
  Choices to_first, elsewhere;
  for (int t = 0; t < 8; ++t) {
    for (const int slot : {0, 1, 2}) {
      to_first.push_back(slot % (static_cast<int>(kNumExperts) / GetParam().ranks));
      elsewhere.push_back(5 + slot);
    }
  }
  for (const bool overflows : {false, true}) {
    std::vector<Choices> choices(static_cast<std::size_t>(GetParam().ranks), elsewhere);
    choices[0] = to_first;
    if (overflows) choices[1] = to_first;
    const double factor = GetParam().ranks - 1.0;
    EXPECT_THAT(trainer::RunRanks(GetParam().ranks,
                                  [&](HostGroup& group) -> Status {
                                    RoutedRank rank(
                                        GetParam().kind,
                                        {.rank_capacity_factor = overflows ? 1 : factor + 1,
                                         .separates_sources = GetParam().separates_sources},
                                        group, GetParam().device);
                                    rank.Route(choices[static_cast<std::size_t>(group.rank())]);
                                    EXPECT_LE(rank.max_rows(), (overflows ? 1 : factor + 1) * 24);
                                    // With all-to-all, which flex is by source, every rank knows.
                                    const bool knows = group.rank() == 0 ||
                                                       GetParam().kind == Dispatcher::kAllToAll ||
                                                       GetParam().separates_sources;
                                    if (!overflows || knows) {
                                      EXPECT_EQ(rank.overflows(), overflows ? 1 : 0);
                                    }
                                    // Whatever the sums are, the ranks agree on what they exchange.
                                    rank.FromExperts(rank.ToExperts(TokenNames(group.rank(), 8)));
                                    return OkStatus();
                                  }),
                IsOk());
  }
}

TEST(RowsPerTokenTest, AreThoseOfEverySetOfExperts) {
  using trainer::RowsPerToken;
  EXPECT_EQ(RowsPerToken(Dispatcher::kAllToAll, 64, 8, 8), 8);
  EXPECT_EQ(RowsPerToken(Dispatcher::kAllGather, 64, 8, 2), 2);
  EXPECT_EQ(RowsPerToken(Dispatcher::kFlex, 64, 1, 8), 1);
  // Two of four experts on two ranks: of six pairs, two are on one rank.
  EXPECT_DOUBLE_EQ(RowsPerToken(Dispatcher::kFlex, 4, 2, 2), (2 * 1 + 4 * 2) / 6.0);
  // More experts than a rank does not hold.
  EXPECT_EQ(RowsPerToken(Dispatcher::kFlex, 4, 3, 2), 2);
  EXPECT_NEAR(RowsPerToken(Dispatcher::kFlex, 64, 8, 8), 5.4326, 1e-4);
}

struct DropCase {
  std::string name;
  DropPolicy policy = DropPolicy::kProbability;
  bool pad = false;
  std::vector<double> rows;      // names of the tokens of expert 0, then 1
  std::vector<double> returned;  // of weights 1 … 9
};
void PrintTo(const DropCase& drop, std::ostream* os) { *os << drop.name; }

class DropTest : public ::testing::TestWithParam<DropCase> {};

// Three tokens choose experts 0, 1 and another one; experts take two.
TEST_P(DropTest, KeepsTheCapacity) {
  const Choices choices = {0, 1, 2, 0, 1, 3, 1, 0, 4};
  const std::vector<double> weights = {0.1, 0.9, 0, 0.2, 0.1, 0, 0.8, 0.3, 0};
  EXPECT_THAT(
      trainer::RunRanks(
          2,
          [&](HostGroup& group) -> Status {
            // The mean load is 9/8.
            RoutedRank rank(
                Dispatcher::kAllToAll,
                {.capacity = {.factor = 1.6, .policy = GetParam().policy, .pad = GetParam().pad}},
                group);
            rank.Route(choices, weights);
            const std::vector<double> rows = rank.ToExperts(TokenNames(0, 3));
            if (group.rank() == 0) {
              // Both ranks send the same.
              std::vector<double> firsts;
              for (std::size_t i = 0; i < 8 * kHidden; i += kHidden) firsts.push_back(rows[i]);
              EXPECT_EQ(firsts, GetParam().rows);
            }
            if (GetParam().pad) {
              EXPECT_EQ(rank.num_rows(), 4 * 2 * 2);  // experts, ranks, capacity
            }
            EXPECT_EQ(rank.dropped(), std::ranges::count(GetParam().returned, 0));
            std::vector<double> slots(9);
            std::iota(slots.begin(), slots.end(), 1);
            EXPECT_EQ(rank.WeightsFromExperts(rank.WeightsToExperts(slots)), GetParam().returned);
            return OkStatus();
          }),
      IsOk());
}

INSTANTIATE_TEST_SUITE_P(Policies, DropTest,
                         ::testing::Values(DropCase{"Probability",
                                                    DropPolicy::kProbability,
                                                    false,
                                                    {1, 2, 1, 2, 0, 2, 0, 2},
                                                    {0, 2, 3, 4, 0, 6, 7, 8, 9}},
                                           DropCase{"Position",
                                                    DropPolicy::kPosition,
                                                    false,
                                                    {0, 1, 0, 1, 0, 1, 0, 1},
                                                    {1, 2, 3, 4, 5, 6, 0, 0, 9}},
                                           DropCase{"ProbabilityPadded",
                                                    DropPolicy::kProbability,
                                                    true,
                                                    {1, 2, 1, 2, 0, 2, 0, 2},
                                                    {0, 2, 3, 4, 0, 6, 7, 8, 9}}),
                         [](const auto& test) { return test.param.name; });

// Choices of padding have no row either, but they were not dropped.
TEST(DispatchCountsTest, CountsDroppedChoices) {
  const Choices choices = {0, 1, 2, 0, 1, 3, 0, 1, 4, -1, -1, -1};
  for (const int ranks : {1, 2}) {
    for (const bool pad : {false, true}) {
      for (const double capacity : {0, 2, 3}) {
        if (pad && capacity == 0) continue;
        std::optional<double> factor;
        if (capacity > 0) factor = capacity * 8 / 9;  // the mean load is 9/8
        EXPECT_THAT(
            trainer::RunRanks(
                ranks,
                [&](HostGroup& group) -> Status {
                  RoutedRank rank(
                      Dispatcher::kAllToAll,
                      {.capacity = {.factor = factor, .policy = DropPolicy::kPosition, .pad = pad}},
                      group);
                  rank.Route(choices);
                  // A third token of experts 0 and 1.
                  EXPECT_EQ(rank.dropped(), capacity == 2 ? 2 : 0);
                  return OkStatus();
                }),
            IsOk());
      }
    }
  }
}

TEST(AllGatherDispatchTest, SeesRanksWithDifferentNumbersOfTokens) {
  const Status status = trainer::RunRanks(2, [&](HostGroup& group) {
    RankDevice rank;
    const auto collectives = rank.CollectivesOf(group);
    trainer::BlockContext context = rank.Context(kType, 1, 0);
    const auto dispatch = trainer::MakeDispatch(
        Dispatcher::kAllGather, {.num_experts = kNumExperts, .topk = kTopK}, collectives.get());
    const std::int64_t tokens = 2 + group.rank();
    dispatch->Plan(context, tokens, tokens);
    dispatch->Route(context, rank.Put(RandomChoices(1, tokens), DType::kInt32, {tokens, kTopK}), {},
                    {});
    return rank.queue().Synchronize();
  });
  EXPECT_THAT(status, FailsWith(ErrorKind::kInternal));
}

}  // namespace
}  // namespace ckpt::testing
