#include <memory>

#include <gtest/gtest.h>

#include "tests/testing/test_seed.h"
#include "tests/trainer/model/gradient_check.h"
#include "tests/trainer/model/tiny_models.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/forwarding_ops.h"

namespace ckpt::testing {
namespace {

using trainer::ActivationRows;
using trainer::AttentionShape;
using trainer::ForwardingOps;
using trainer::GemmForm;
using trainer::Gradient;
using trainer::QkvForm;
using trainer::Queue;
using trainer::Tensor;

constexpr std::uint64_t kDefaultSeed = 7;
constexpr double kTolerance = 1e-6;

GradientError ErrorOf(const trainer::ModelConfig& config, RunnerOptions options = {}) {
  const std::uint64_t seed = testing::TestSeed(kDefaultSeed);
  options.compute = DType::kFloat64;
  options.scales = {.token = 0.3, .aux = 0.7};
  ModelRunner runner(config, RandomBatch(seed, config.vocab_size), options);
  FillFromSeed(seed, runner.params());
  return WorstGradientError(runner, seed);
}

class GradientTest : public ::testing::TestWithParam<TinyModel> {};

TEST_P(GradientTest, EqualsFiniteDifferences) {
  SCOPED_TRACE(::testing::Message()
               << "replay: CKPT_TEST_SEED=" << testing::TestSeed(kDefaultSeed));
  const GradientError worst = ErrorOf(GetParam().config);
  EXPECT_LT(worst.relative, kTolerance) << worst.parameter;
}

INSTANTIATE_TEST_SUITE_P(Tiny, GradientTest, ::testing::ValuesIn(AllModels()),
                         [](const auto& test) { return test.param.name; });

// One backward operation is off by 1e-4.
enum class Planted {
  kAttention,
  kBias,
  kCrossEntropy,
  kEmbedding,
  kNorm,
  kProjection,
  kSwiGlu,
  kWeightProduct,
};

class PlantedErrorOps final : public ForwardingOps {
 public:
  PlantedErrorOps(trainer::Ops& target, Planted planted)
      : ForwardingOps(target), planted_(planted) {}

  void AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                         const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                         const Tensor& lse, const Tensor& dq, const Tensor& dk,
                         const Tensor& dv) override {
    ForwardingOps::AttentionBackward(queue, shape, d_o, q, k, v, o, lse, dq, dk, dv);
    Spoil(Planted::kAttention, queue, dk);
  }
  void BiasBackward(Queue& queue, const Tensor& dy, const Gradient& dbias) override {
    ForwardingOps::BiasBackward(queue, dy, dbias);
    Spoil(Planted::kBias, queue, dbias.tensor);
  }
  void CrossEntropyBackward(Queue& queue, const Tensor& logits, const Tensor& labels,
                            const Tensor& lse, const Tensor& token_weights,
                            const Tensor& dlogits) override {
    ForwardingOps::CrossEntropyBackward(queue, logits, labels, lse, token_weights, dlogits);
    Spoil(Planted::kCrossEntropy, queue, dlogits);
  }
  void EmbeddingBackward(Queue& queue, const Tensor& tokens, const Tensor& dy,
                         const Gradient& dtable) override {
    ForwardingOps::EmbeddingBackward(queue, tokens, dy, dtable);
    Spoil(Planted::kEmbedding, queue, dtable.tensor);
  }
  void RmsNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, bool accumulate, const Tensor& dx,
                       const Gradient& dweight) override {
    ForwardingOps::RmsNormBackward(queue, dy, x, weight, rstd, accumulate, dx, dweight);
    Spoil(Planted::kNorm, queue, dx);
  }
  void QkvPrepareBackward(Queue& queue, const QkvForm& form, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv, const Tensor& qkv, const Tensor& q_rstd,
                          const Tensor& k_rstd, const Tensor& dqkv, const Gradient& dq_norm,
                          const Gradient& dk_norm) override {
    ForwardingOps::QkvPrepareBackward(queue, form, dq, dk, dv, qkv, q_rstd, k_rstd, dqkv, dq_norm,
                                      dk_norm);
    Spoil(Planted::kProjection, queue, dqkv);
  }
  void SwiGluBackward(Queue& queue, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
                      const Tensor& dx, const Tensor& drow_weights,
                      const Tensor& activated) override {
    ForwardingOps::SwiGluBackward(queue, dy, x, rows, dx, drow_weights, activated);
    Spoil(Planted::kSwiGlu, queue, dx);
  }
  void Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
            const Tensor& d) override {
    ForwardingOps::Gemm(queue, form, a, b, d);
    if (form.transpose_a) Spoil(Planted::kWeightProduct, queue, d);
  }

 private:
  void Spoil(Planted planted, Queue& queue, const Tensor& values) {
    if (planted != planted_) return;
    CKPT_CHECK(values.dtype == DType::kFloat64);
    trainer::RunOn(queue, [values] {
      for (std::int64_t i = 0; i < values.num_elems(); ++i) values.as<double>()[i] *= 1 + 1e-4;
    });
  }

  const Planted planted_;
};

class PlantedErrorTest : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedErrorTest, IsFound) {
  trainer::ModelConfig config = TinyDense();
  config.qkv_bias = true;
  const GradientError worst =
      ErrorOf(config, {.wrap = [](trainer::Ops& ops) -> std::unique_ptr<trainer::Ops> {
                return std::make_unique<PlantedErrorOps>(ops, GetParam());
              }});
  EXPECT_GT(worst.relative, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Backward, PlantedErrorTest,
                         ::testing::Values(Planted::kAttention, Planted::kBias,
                                           Planted::kCrossEntropy, Planted::kEmbedding,
                                           Planted::kNorm, Planted::kProjection, Planted::kSwiGlu,
                                           Planted::kWeightProduct));

}  // namespace
}  // namespace ckpt::testing
