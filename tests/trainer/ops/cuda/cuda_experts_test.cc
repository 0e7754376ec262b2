// The GPU's operations of mixtures of experts against the CPU's.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/trainer/ops/cuda/twins.h"

namespace ckpt::trainer {
namespace {

constexpr DType kExpertDTypes[] = {DType::kFloat32, DType::kBfloat16};

class CudaExpertsTest : public Twins {
 protected:
  // As ExpectNear, over the elements [begin, end): the others are not in use, and stay NaN.
  static void ExpectNearWithin(const Operand& result, std::int64_t begin, std::int64_t end,
                               double bound) {
    if (HasFatalFailure()) return;
    std::vector<double> cpu = result.Read(0);
    std::vector<double> gpu = result.Read(1);
    double difference = 0;
    double norm = 0;
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      difference += (gpu[i] - cpu[i]) * (gpu[i] - cpu[i]);
      norm += cpu[i] * cpu[i];
    }
    EXPECT_LE(std::sqrt(difference),
              bound * std::sqrt(std::max(norm, static_cast<double>(end - begin))));
    for (std::size_t i = 0; i < gpu.size(); ++i) {
      if (static_cast<std::int64_t>(i) == begin) i = static_cast<std::size_t>(end);
      if (i == gpu.size()) break;
      ASSERT_TRUE(std::isnan(gpu[i])) << "element " << i << " is not in use, but was written";
    }
  }
  static void ExpectNearFirst(const Operand& result, std::int64_t count, double bound) {
    ExpectNearWithin(result, 0, count, bound);
  }

  struct ProductSize {
    std::int64_t out, in;
  };
  // The rows of the experts, with room for 20 more after them and, for `first` more, before them.
  struct RowCounts {
    std::int64_t first = 0;
    std::vector<std::int64_t> of_expert;
  };
  // Compares the three products of row ranges. Rows that are of no expert are NaN.
  void ExpectProductsAgree(DType dtype, const ProductSize& size, const RowCounts& counts) {
    const auto experts = static_cast<std::int64_t>(counts.of_expert.size());
    std::vector<double> bounds = {static_cast<double>(counts.first)};
    for (const std::int64_t count : counts.of_expert) {
      bounds.push_back(bounds.back() + static_cast<double>(count));
    }
    const auto end = static_cast<std::int64_t>(bounds.back());
    const std::int64_t rows = end + 20;
    SCOPED_TRACE(std::string(DTypeName(dtype)) + ", O " + std::to_string(size.out) + ", I " +
                 std::to_string(size.in) + ", experts " + std::to_string(experts) + ", rows " +
                 std::to_string(counts.first) + " to " + std::to_string(end));
    const auto make_rows = [&](std::int64_t columns) {
      Operand operand = Random(dtype, {rows, columns});
      std::vector<double> values = operand.Read(0);
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        if (i >= counts.first * columns && i < end * columns) continue;
        values[static_cast<std::size_t>(i)] = std::nan("");
      }
      operand.Set(values);
      return operand;
    };
    const auto offsets = Values(DType::kInt32, {experts + 1}, bounds);
    const auto x = make_rows(size.in);
    const auto dy = make_rows(size.out);
    const auto w = Random(dtype, {experts, size.out, size.in});
    const auto y = Poisoned(dtype, {rows, size.out});
    const auto dx = Poisoned(dtype, {rows, size.in});
    OnBoth([&](Ops& ops, Queue& queue) {
      ops.GroupedForward(queue, x, w, offsets, 1, y);
      ops.GroupedBackwardData(queue, dy, w, offsets, 1, dx);
    });
    ExpectNearWithin(y, counts.first * size.out, end * size.out, BoundOf(dtype));
    ExpectNearWithin(dx, counts.first * size.in, end * size.in, BoundOf(dtype));
    for (const DType gradient : kExpertDTypes) {
      const auto stored = Poisoned(gradient, {experts, size.out, size.in});
      const auto added = Random(gradient, {experts, size.out, size.in});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.GroupedBackwardWeights(queue, dy, x, offsets, 1,
                                   {.tensor = stored, .write = GradWrite::kStore});
        ops.GroupedBackwardWeights(queue, dy, x, offsets, 1,
                                   {.tensor = added, .write = GradWrite::kAdd});
      });
      const double bound = gradient == DType::kBfloat16 ? BoundOf(gradient) : 5e-6;
      ExpectNear(stored, bound);
      ExpectNear(added, bound);
    }
  }

  struct Rows {
    Operand rows;
    Operand choices;
    Operand offsets;

    [[nodiscard]] ExpertRows Here() const {
      return {.rows = rows, .choices = choices, .offsets = offsets};
    }
    [[nodiscard]] std::int64_t InUse() const {
      return static_cast<std::int64_t>(offsets.Read(0).back());
    }
  };
  Rows MakeRows(std::int64_t tokens, std::int64_t topk, std::int64_t experts,
                std::int64_t max_rows) {
    return {Values(DType::kInt32, {tokens, topk},
                   std::vector<double>(static_cast<std::size_t>(tokens * topk), 7)),
            Values(DType::kInt32, {max_rows},
                   std::vector<double>(static_cast<std::size_t>(max_rows), -7)),
            Values(DType::kInt32, {experts + 1},
                   std::vector<double>(static_cast<std::size_t>(experts + 1), 9))};
  }
};

TEST_F(CudaExpertsTest, RoutersAgree) {
  constexpr std::int64_t kTokens = 1015;  // 35 sequences; more than a block counts
  constexpr std::int64_t kExperts = 48;
  for (const ScoreFunction score :
       {ScoreFunction::kSoftmax, ScoreFunction::kSoftmaxTopK, ScoreFunction::kSigmoid}) {
    for (const bool grouped : {false, true}) {
      for (const bool normalize : {false, true}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(score)) + (grouped ? " grouped" : "") +
                     (normalize ? " normalized" : ""));
        const RouterForm form = {
            .score = score,
            .topk = 6,
            .num_groups = grouped ? 8 : 1,
            .group_topk = grouped ? 3 : 1,
            .group_score = normalize ? GroupScore::kTopTwoSum : GroupScore::kMax,
            .normalize = normalize,
            .scaling = 2.5};
        const auto logits = Random(DType::kFloat32, {kTokens, kExperts});
        const auto bias = Random(DType::kFloat32, {kExperts}, 0.1);
        std::vector<double> position_values(kTokens);
        for (std::size_t t = 0; t < position_values.size(); ++t) {
          position_values[t] = t % 7 == 6 ? -1 : static_cast<double>(t);
        }
        const auto positions = Values(DType::kInt32, {kTokens}, position_values);
        const auto scores = Poisoned(DType::kFloat32, {kTokens, kExperts});
        const auto experts = Indices({kTokens, form.topk}, 1000);
        const auto weights = Poisoned(DType::kFloat32, {kTokens, form.topk});
        const auto dweights = Random(DType::kFloat32, {kTokens, form.topk});
        const auto dlogits = Poisoned(DType::kFloat32, {kTokens, kExperts});
        const auto batch_dlogits = Random(DType::kFloat32, {kTokens, kExperts}, 1e-3);
        const auto loss = Values(DType::kFloat32, {1}, {10});
        OnBoth([&](Ops& ops, Queue& queue) {
          ops.Router(queue, form, logits, normalize ? Tensor(bias) : Tensor(), positions, scores,
                     experts, weights);
          ops.RouterBackward(queue, form, scores, experts, dweights, dlogits);
          ops.RouterAuxLoss(
              queue, form,
              {.kind = AuxLoss::kSequence, .coefficient = 0.01, .z_coefficient = 0.001, .seq = 29},
              logits, scores, experts, 0.5, loss, batch_dlogits);
          ops.RouterAuxLoss(queue, form, {.kind = AuxLoss::kBatch, .coefficient = 0.1}, logits,
                            scores, experts, 1, loss, {});
        });
        ExpectEqual(experts);
        ExpectNear(scores, 1e-6);
        ExpectNear(weights, 1e-6);
        ExpectNear(dlogits, 1e-6);
        ExpectNear(loss, 1e-6);
        ExpectNear(batch_dlogits, 1e-6);

        RouterForm assigned = form;
        assigned.is_assigned = true;
        std::vector<double> given(kTokens * 6);
        for (std::size_t i = 0; i < given.size(); ++i) {
          given[i] = i / 6 % 7 == 6 ? -1 : static_cast<double>(i * 5 % kExperts);
        }
        const auto given_experts = Values(DType::kInt32, {kTokens, form.topk}, given);
        OnBoth([&](Ops& ops, Queue& queue) {
          ops.Router(queue, assigned, logits, {}, {}, scores, given_experts, weights);
          ops.RouterBackward(queue, assigned, scores, given_experts, dweights, dlogits);
        });
        ExpectEqual(given_experts);
        ExpectNear(scores, 1e-6);
        ExpectNear(weights, 1e-6);
        ExpectNear(dlogits, 1e-6);
      }
    }
  }
}

TEST_F(CudaExpertsTest, RowsAreSortedAlike) {
  constexpr std::int64_t kTokens = 700;
  constexpr std::int64_t kTopk = 6;
  constexpr std::int64_t kHidden = 72;
  struct Case {
    SortForm form;
    std::int64_t max_rows;
  };
  for (const Case& c :
       {Case{{.num_experts = 16}, 4000}, Case{{.first_expert = 4, .num_experts = 8}, 2800},
        Case{{.num_experts = 16}, 100},
        Case{{.num_experts = 16, .capacity = 90, .policy = DropPolicy::kPosition}, 2800},
        Case{{.num_experts = 16, .capacity = 90, .policy = DropPolicy::kProbability}, 2800},
        Case{{.num_experts = 16, .capacity = 200, .policy = DropPolicy::kProbability, .pad = true},
             3200}}) {
    std::vector<double> chosen(kTokens * kTopk);
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t k = 0; k < kTopk; ++k) {  // distinct, uneven, with padding
        const std::size_t expert = (t * t / 3 + k * 5) % 16;
        chosen[t * kTopk + k] = t % 11 == 10 ? -1 : static_cast<double>(t % 3 == 0 ? k : expert);
      }
    }
    const auto experts = Values(DType::kInt32, {kTokens, kTopk}, chosen);
    const auto weights = Random(DType::kFloat32, {kTokens, kTopk});
    const Rows rows = MakeRows(kTokens, kTopk, c.form.num_experts, c.max_rows);
    const auto dropped = Values(DType::kInt64, {1}, {5});
    const auto overflows = Values(DType::kInt64, {1}, {0});
    OnBoth([&](Ops& ops, Queue& queue) {
      ops.SortByExpert(queue, c.form, experts, weights, rows.Here(), dropped, overflows);
    });
    for (const auto* result : {&rows.rows, &rows.offsets, &dropped, &overflows}) {
      ExpectEqual(*result);
    }
    const auto in_use = static_cast<std::size_t>(rows.InUse());
    std::vector<double> cpu = rows.choices.Read(0);
    std::vector<double> gpu = rows.choices.Read(1);
    cpu.resize(in_use);
    gpu.resize(in_use);
    EXPECT_EQ(gpu, cpu);

    for (const DType dtype : kExpertDTypes) {
      const auto x = Random(dtype, {kTokens, kHidden});
      const auto y = Poisoned(dtype, {c.max_rows, kHidden});
      const auto row_weights = Poisoned(DType::kFloat32, {c.max_rows});
      const auto back = Poisoned(dtype, {kTokens, kHidden});
      const auto back_weights = Poisoned(DType::kFloat32, {kTokens, kTopk});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.Permute(queue, rows.Here(), x, weights, y, row_weights);
        ops.Unpermute(queue, rows.Here(), y, row_weights, back, back_weights);
      });
      ExpectNearFirst(y, rows.InUse() * kHidden, 0);
      ExpectNearFirst(row_weights, rows.InUse(), 0);
      ExpectEqual(back);
      ExpectEqual(back_weights);
    }
  }
}

TEST_F(CudaExpertsTest, CountsAndBiasesOfExpertsAreTheSame) {
  const auto keep = Values(DType::kFloat64, {6}, {1e-3, 0.19, 0.17, 0.25, 0.7, 0});
  const auto skip = Values(DType::kFloat64, {6}, {1e-3, 0.19, 0.17, 0.25, 0.7, 1});
  for (const std::int64_t experts : {1, 48, 300}) {
    for (const std::int64_t segments : {1, 3}) {
      std::vector<double> bounds = {0};
      for (std::int64_t i = 0; i < experts * segments; ++i) {
        bounds.push_back(bounds.back() + static_cast<double>(i * 37 % 11));
      }
      const auto offsets = Values(DType::kInt32, {experts * segments + 1}, bounds);
      const auto counts = Values(DType::kInt64, {experts},
                                 std::vector<double>(static_cast<std::size_t>(experts), 1000000));
      const auto bias = Random(DType::kFloat32, {experts});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.CountRows(queue, offsets, segments, counts);
        ops.UpdateExpertBias(queue, counts, 1e-3, keep, bias);
        ops.UpdateExpertBias(queue, counts, 0.5, skip, bias);
        ops.CountRows(queue, offsets, segments, counts);
      });
      ExpectEqual(counts);
      ExpectEqual(bias);
    }
  }
}

TEST_F(CudaExpertsTest, ProductsOfRowRangesAgree) {
  // More experts than threads of a warp, two thirds of them without a row.
  RowCounts many;
  for (std::int64_t e = 0; e < 100; ++e) many.of_expert.push_back(e % 3 == 1 ? e / 4 : 0);
  const RowCounts cases[] = {
      {.of_expert = {70, 0, 1, 129, 63}},                        //
      {.of_expert = {0, 1, 63, 64, 65, 127, 128, 129, 0, 257}},  // around the sizes of tiles
      {.first = 37, .of_expert = {0, 128, 135}},                 // some of more experts
      {.of_expert = {0, 0, 640, 0}},                             // one has all rows
      {.of_expert = {0, 0, 0}},                                  // there are no rows
      many,
  };
  for (const DType dtype : kExpertDTypes) {
    // Of 65 x 33 no row begins at a multiple of 16 bytes.
    for (const ProductSize& size : {ProductSize{8, 8}, {24, 40}, {65, 33}, {128, 64}, {136, 328}}) {
      for (const RowCounts& counts : cases) ExpectProductsAgree(dtype, size, counts);
    }
  }
}

TEST_F(CudaExpertsTest, ProductsOfRealSizesAgree) {
  const RowCounts counts = {.of_expert = {300, 0, 1, 257, 130}};
  for (const ProductSize& size : {ProductSize{1280, 1024}, {1024, 640}, {1536, 2048}}) {
    ExpectProductsAgree(DType::kBfloat16, size, counts);
  }
}

// Each block computes many tiles. A sum of the first expert takes as long as all of the others.
TEST_F(CudaExpertsTest, ProductsOfUnevenExpertsAgree) {
  RowCounts counts;
  for (std::int64_t e = 0; e < 40; ++e)
    counts.of_expert.push_back(e % 5 == 3 ? 0 : 1 + 7 * (e % 6));
  counts.of_expert[17] = 900;
  ExpectProductsAgree(DType::kBfloat16, {1280, 264}, counts);
}

TEST_F(CudaExpertsTest, RanksAreChosenAlike) {
  constexpr std::int64_t kTokens = 1001;
  constexpr std::int64_t kTopK = 5;
  std::vector<double> choices;
  for (std::int64_t i = 0; i < kTokens * kTopK; ++i) {
    choices.push_back(static_cast<double>(i % 13 == 0 ? -1 : i * 31 % 96));
  }
  const auto experts = Values(DType::kInt32, {kTokens, kTopK}, choices);
  for (const std::int64_t num_ranks : {1, 3, 8, 96}) {
    const auto ranks = Poisoned(DType::kInt32, {kTokens, num_ranks});
    OnBoth([&](Ops& ops, Queue& queue) { ops.ChosenRanks(queue, experts, 96 / num_ranks, ranks); });
    ExpectEqual(ranks);
  }
}

TEST_F(CudaExpertsTest, AnExchangeOfRowsIsPlannedAlike) {
  constexpr std::int64_t kRanks = 3;
  constexpr std::int64_t kExperts = 3 * 70;  // more than threads of a warp
  std::vector<double> offsets;
  std::vector<double> received(kRanks);
  for (std::int64_t source = 0; source < kRanks; ++source) {
    double rows = 0;
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      offsets.push_back(rows);
      const auto sent = static_cast<double>((expert * 7 + source * 5) % 11 < 6 ? expert % 13 : 0);
      rows += sent;
      received[static_cast<std::size_t>(expert / (kExperts / kRanks))] += sent;
    }
    offsets.push_back(rows);
  }
  const auto all_offsets = Values(DType::kInt32, {kRanks, kExperts + 1}, offsets);
  const double most = *std::ranges::max_element(received);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    for (const bool separates : {false, true}) {
      for (const std::int64_t lacking : {0, 1}) {
        const std::int64_t room = static_cast<std::int64_t>(most) - lacking;
        const auto zeros = [&](DType dtype, std::int64_t count) {
          return Values(dtype, {count}, std::vector<double>(static_cast<std::size_t>(count)));
        };
        const auto send = zeros(DType::kInt64, kRanks);
        const auto receive = zeros(DType::kInt64, kRanks);
        const auto arrival = zeros(DType::kInt32, room);
        const auto ranges = zeros(DType::kInt32, (separates ? kExperts : kExperts / kRanks) + 1);
        const auto overflows = zeros(DType::kInt64, 1);
        OnBoth([&](Ops& ops, Queue& queue) {
          ops.PlanExchange(queue, rank, all_offsets, {send, receive, arrival, ranges}, overflows);
        });
        for (const auto* result : {&send, &receive, &arrival, &ranges, &overflows}) {
          ExpectEqual(*result);
        }
        EXPECT_EQ(overflows.Read(1).front(), static_cast<double>(lacking));
      }
    }
  }
}

TEST_F(CudaExpertsTest, RowsAreGatheredAndScatteredAlike) {
  constexpr std::int64_t kRows = 1001;
  constexpr std::int64_t kInUse = 900;
  std::vector<double> index(kRows, -1);
  for (std::int64_t i = 0; i < kInUse; ++i) {
    index[static_cast<std::size_t>(i)] = static_cast<double>(i * 7 % kInUse);
  }
  const auto places = Values(DType::kInt32, {kRows}, index);
  const auto count = Values(DType::kInt32, {1}, {kInUse});
  for (const DType dtype : kExpertDTypes) {
    for (const std::int64_t columns : {1, 3, 8, 1024}) {
      const auto x = Random(dtype, {kRows, columns});
      const auto gathered = Poisoned(dtype, {kRows, columns});
      const auto scattered = Poisoned(dtype, {kRows, columns});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.GatherRows(queue, x, places, count, gathered);
        ops.ScatterRows(queue, x, places, count, scattered);
      });
      ExpectNearFirst(gathered, kInUse * columns, 0);
      ExpectNearFirst(scattered, kInUse * columns, 0);
    }
  }
}

TEST_F(CudaExpertsTest, RouterLogitsBackwardIsTheCpus) {
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    for (const std::int64_t tokens : {1, 33, 1537}) {
      for (const std::int64_t experts : {8, 65}) {
        constexpr std::int64_t kColumns = 136;
        const auto x = Random(dtype, {tokens, kColumns});
        const auto weight = Random(dtype, {experts, kColumns});
        const auto dlogits = Random(DType::kFloat32, {tokens, experts});
        const auto dx = Random(dtype, {tokens, kColumns});
        const auto dweight = Random(DType::kFloat32, {experts, kColumns});
        OnBoth([&](Ops& ops, Queue& queue) {
          for (const GradWrite write : {GradWrite::kStore, GradWrite::kAdd}) {
            ops.RouterLogitsBackward(queue, dlogits, x, weight, dx,
                                     {.tensor = dweight, .write = write});
          }
          ops.RouterLogitsBackward(queue, dlogits, x, weight, dx, {});
        });
        ExpectNear(dx, 3 * BoundOf(dtype));
        ExpectNear(dweight, 2 * BoundOf(DType::kFloat32));
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::trainer
