// The GPU's operations of mixtures of experts against the CPU's.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/trainer/ops/cuda/twins.h"

namespace ckpt::trainer {
namespace {

constexpr DType kComputeDTypes[] = {DType::kFloat32, DType::kBfloat16};

class CudaExpertsTest : public Twins {
 protected:
  // As ExpectNear, over the first `count` elements: the others are not in use, and stay NaN.
  static void ExpectNearFirst(const Operand& result, std::int64_t count, double bound) {
    if (HasFatalFailure()) return;
    std::vector<double> cpu = result.Read(0);
    std::vector<double> gpu = result.Read(1);
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      difference += (gpu[i] - cpu[i]) * (gpu[i] - cpu[i]);
      norm += cpu[i] * cpu[i];
    }
    EXPECT_LE(std::sqrt(difference), bound * std::sqrt(std::max(norm, static_cast<double>(count))));
    for (std::size_t i = static_cast<std::size_t>(count); i < gpu.size(); ++i) {
      ASSERT_TRUE(std::isnan(gpu[i])) << "element " << i << " is not in use, but was written";
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
  constexpr std::int64_t kTokens = 203;
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
      }
    }
  }
}

TEST_F(CudaExpertsTest, RowsAreSortedAlike) {
  constexpr std::int64_t kTokens = 700;
  constexpr std::int64_t kTopk = 4;
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

    for (const DType dtype : kComputeDTypes) {
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

TEST_F(CudaExpertsTest, ProductsOfRowRangesAgree) {
  struct Size {
    std::int64_t out, in;
  };
  for (const DType dtype : kComputeDTypes) {
    for (const Size size : {Size{24, 40}, Size{128, 64}, Size{65, 33}}) {
      const std::vector<double> bounds = {0, 70, 70, 71, 200, 263};  // the second has no row
      constexpr std::int64_t kExperts = 5;
      constexpr std::int64_t kRows = 300;
      constexpr std::int64_t kInUse = 263;
      const auto offsets = Values(DType::kInt32, {kExperts + 1}, bounds);
      const auto x = Random(dtype, {kRows, size.in});
      const auto w = Random(dtype, {kExperts, size.out, size.in});
      const auto dy = Random(dtype, {kRows, size.out});
      const auto y = Poisoned(dtype, {kRows, size.out});
      const auto dx = Poisoned(dtype, {kRows, size.in});
      const auto stored = Poisoned(DType::kFloat32, {kExperts, size.out, size.in});
      const auto added = Random(dtype, {kExperts, size.out, size.in});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.GroupedForward(queue, x, w, offsets, 1, y);
        ops.GroupedBackwardData(queue, dy, w, offsets, 1, dx);
        ops.GroupedBackwardWeights(queue, dy, x, offsets, 1,
                                   {.tensor = stored, .write = GradWrite::kStore});
        ops.GroupedBackwardWeights(queue, dy, x, offsets, 1,
                                   {.tensor = added, .write = GradWrite::kAdd});
      });
      ExpectNearFirst(y, kInUse * size.out, BoundOf(dtype));
      ExpectNearFirst(dx, kInUse * size.in, BoundOf(dtype));
      ExpectNear(stored, 5e-6);
      ExpectNear(added, BoundOf(dtype));
    }
  }
}

}  // namespace
}  // namespace ckpt::trainer
