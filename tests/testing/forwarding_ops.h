// ForwardingOps: an Ops that hands every call on, to be derived from by tests that change one, or
// do something around all.
#ifndef CKPT_TESTS_TESTING_FORWARDING_OPS_H_
#define CKPT_TESTS_TESTING_FORWARDING_OPS_H_

#include <functional>

#include "trainer/ops/ops.h"

namespace ckpt::testing {

class ForwardingOps : public trainer::Ops {
 public:
  using ActivationRows = trainer::ActivationRows;
  using AdamWForm = trainer::AdamWForm;
  using AttentionShape = trainer::AttentionShape;
  using AuxLossForm = trainer::AuxLossForm;
  using ExchangePlan = trainer::ExchangePlan;
  using ExpertRows = trainer::ExpertRows;
  using GemmForm = trainer::GemmForm;
  using Gradient = trainer::Gradient;
  using MlaShape = trainer::MlaShape;
  using Queue = trainer::Queue;
  using QkvForm = trainer::QkvForm;
  using RopeForm = trainer::RopeForm;
  using RouterForm = trainer::RouterForm;
  using SgdForm = trainer::SgdForm;
  using SortForm = trainer::SortForm;
  using StepRule = trainer::StepRule;
  using Tensor = trainer::Tensor;

  explicit ForwardingOps(trainer::Ops& target) : target_(target) {}

  [[nodiscard]] Status CheckSupports(const trainer::OpsNeeds& needs) const override {
    return target_.CheckSupports(needs);
  }

  void Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
            const Tensor& d) override {
    Around("Gemm", [&] { target_.Gemm(queue, form, a, b, d); });
  }
  void GroupedForward(Queue& queue, const Tensor& x, const Tensor& weights, const Tensor& offsets,
                      std::int64_t segments, const Tensor& y) override {
    Around("GroupedForward",
           [&] { target_.GroupedForward(queue, x, weights, offsets, segments, y); });
  }
  void GroupedBackwardData(Queue& queue, const Tensor& dy, const Tensor& weights,
                           const Tensor& offsets, std::int64_t segments,
                           const Tensor& dx) override {
    Around("GroupedBackwardData",
           [&] { target_.GroupedBackwardData(queue, dy, weights, offsets, segments, dx); });
  }
  void GroupedBackwardWeights(Queue& queue, const Tensor& dy, const Tensor& x,
                              const Tensor& offsets, std::int64_t segments,
                              const Gradient& dweights) override {
    Around("GroupedBackwardWeights",
           [&] { target_.GroupedBackwardWeights(queue, dy, x, offsets, segments, dweights); });
  }
  void Fill(Queue& queue, const Tensor& x, double value) override {
    Around("Fill", [&] { target_.Fill(queue, x, value); });
  }
  void Cast(Queue& queue, const Tensor& from, const Tensor& to) override {
    Around("Cast", [&] { target_.Cast(queue, from, to); });
  }
  void Accumulate(Queue& queue, const Tensor& from, const Tensor& to) override {
    Around("Accumulate", [&] { target_.Accumulate(queue, from, to); });
  }
  void Add(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& out) override {
    Around("Add", [&] { target_.Add(queue, a, b, out); });
  }
  void AddBias(Queue& queue, const Tensor& x, const Tensor& bias) override {
    Around("AddBias", [&] { target_.AddBias(queue, x, bias); });
  }
  void BiasBackward(Queue& queue, const Tensor& dy, const Gradient& dbias) override {
    Around("BiasBackward", [&] { target_.BiasBackward(queue, dy, dbias); });
  }
  void RmsNorm(Queue& queue, const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
               const Tensor& rstd) override {
    Around("RmsNorm", [&] { target_.RmsNorm(queue, x, weight, eps, y, rstd); });
  }
  void AddRmsNorm(Queue& queue, const Tensor& x, const Tensor& delta, const Tensor& weight,
                  double eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) override {
    Around("AddRmsNorm", [&] { target_.AddRmsNorm(queue, x, delta, weight, eps, sum, y, rstd); });
  }
  void RmsNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, bool accumulate, const Tensor& dx,
                       const Gradient& dweight) override {
    Around("RmsNormBackward",
           [&] { target_.RmsNormBackward(queue, dy, x, weight, rstd, accumulate, dx, dweight); });
  }
  void LayerNorm(Queue& queue, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double eps, const Tensor& y, const Tensor& statistics) override {
    Around("LayerNorm", [&] { target_.LayerNorm(queue, x, weight, bias, eps, y, statistics); });
  }
  void LayerNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& statistics, bool accumulate, const Tensor& dx,
                         const Gradient& dweight, const Gradient& dbias) override {
    Around("LayerNormBackward", [&] {
      target_.LayerNormBackward(queue, dy, x, weight, statistics, accumulate, dx, dweight, dbias);
    });
  }
  void SwiGlu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) override {
    Around("SwiGlu", [&] { target_.SwiGlu(queue, x, rows, y); });
  }
  void SwiGluBackward(Queue& queue, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
                      const Tensor& dx, const Tensor& drow_weights,
                      const Tensor& activated) override {
    Around("SwiGluBackward",
           [&] { target_.SwiGluBackward(queue, dy, x, rows, dx, drow_weights, activated); });
  }
  void Gelu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) override {
    Around("Gelu", [&] { target_.Gelu(queue, x, rows, y); });
  }
  void GeluBackward(Queue& queue, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
                    const Tensor& dx, const Tensor& drow_weights,
                    const Tensor& activated) override {
    Around("GeluBackward",
           [&] { target_.GeluBackward(queue, dy, x, rows, dx, drow_weights, activated); });
  }
  void QkvPrepare(Queue& queue, const QkvForm& form, const Tensor& qkv, const Tensor& q,
                  const Tensor& k, const Tensor& v, const Tensor& q_rstd,
                  const Tensor& k_rstd) override {
    Around("QkvPrepare", [&] { target_.QkvPrepare(queue, form, qkv, q, k, v, q_rstd, k_rstd); });
  }
  void QkvPrepareBackward(Queue& queue, const QkvForm& form, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv, const Tensor& qkv, const Tensor& q_rstd,
                          const Tensor& k_rstd, const Tensor& dqkv, const Gradient& dq_norm,
                          const Gradient& dk_norm) override {
    Around("QkvPrepareBackward", [&] {
      target_.QkvPrepareBackward(queue, form, dq, dk, dv, qkv, q_rstd, k_rstd, dqkv, dq_norm,
                                 dk_norm);
    });
  }
  void SplitMlaKv(Queue& queue, const MlaShape& shape, const Tensor& kv, const Tensor& k_rope,
                  const Tensor& k, const Tensor& v) override {
    Around("SplitMlaKv", [&] { target_.SplitMlaKv(queue, shape, kv, k_rope, k, v); });
  }
  void SplitMlaKvBackward(Queue& queue, const MlaShape& shape, const Tensor& dk, const Tensor& dv,
                          const Tensor& dkv, const Tensor& dk_rope) override {
    Around("SplitMlaKvBackward",
           [&] { target_.SplitMlaKvBackward(queue, shape, dk, dv, dkv, dk_rope); });
  }
  void SplitColumns(Queue& queue, const Tensor& from, const Tensor& a, const Tensor& b) override {
    Around("SplitColumns", [&] { target_.SplitColumns(queue, from, a, b); });
  }
  void MergeColumns(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& to) override {
    Around("MergeColumns", [&] { target_.MergeColumns(queue, a, b, to); });
  }
  void Rope(Queue& queue, const RopeForm& form, const Tensor& cosine, const Tensor& sine,
            const Tensor& x) override {
    Around("Rope", [&] { target_.Rope(queue, form, cosine, sine, x); });
  }
  void Attention(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& o, const Tensor& lse) override {
    Around("Attention", [&] { target_.Attention(queue, shape, q, k, v, o, lse); });
  }
  void AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                         const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                         const Tensor& lse, const Tensor& dq, const Tensor& dk,
                         const Tensor& dv) override {
    Around("AttentionBackward",
           [&] { target_.AttentionBackward(queue, shape, d_o, q, k, v, o, lse, dq, dk, dv); });
  }
  void Embedding(Queue& queue, const Tensor& tokens, const Tensor& table,
                 const Tensor& y) override {
    Around("Embedding", [&] { target_.Embedding(queue, tokens, table, y); });
  }
  void EmbeddingBackward(Queue& queue, const Tensor& tokens, const Tensor& dy,
                         const Gradient& dtable) override {
    Around("EmbeddingBackward", [&] { target_.EmbeddingBackward(queue, tokens, dy, dtable); });
  }
  void CrossEntropy(Queue& queue, const Tensor& logits, const Tensor& labels, std::int64_t vocab,
                    const Tensor& losses, const Tensor& lse) override {
    Around("CrossEntropy",
           [&] { target_.CrossEntropy(queue, logits, labels, vocab, losses, lse); });
  }
  void CrossEntropyBackward(Queue& queue, const Tensor& logits, const Tensor& labels,
                            std::int64_t vocab, const Tensor& lse, const Tensor& token_weights,
                            const Tensor& dlogits) override {
    Around("CrossEntropyBackward", [&] {
      target_.CrossEntropyBackward(queue, logits, labels, vocab, lse, token_weights, dlogits);
    });
  }
  void Router(Queue& queue, const RouterForm& form, const Tensor& logits, const Tensor& expert_bias,
              const Tensor& positions, const Tensor& scores, const Tensor& experts,
              const Tensor& weights) override {
    Around("Router", [&] {
      target_.Router(queue, form, logits, expert_bias, positions, scores, experts, weights);
    });
  }
  void RouterBackward(Queue& queue, const RouterForm& form, const Tensor& scores,
                      const Tensor& experts, const Tensor& dweights,
                      const Tensor& dlogits) override {
    Around("RouterBackward",
           [&] { target_.RouterBackward(queue, form, scores, experts, dweights, dlogits); });
  }
  void RouterLogitsBackward(Queue& queue, const Tensor& dlogits, const Tensor& x,
                            const Tensor& weight, const Tensor& dx,
                            const Gradient& dweight) override {
    Around("RouterLogitsBackward",
           [&] { target_.RouterLogitsBackward(queue, dlogits, x, weight, dx, dweight); });
  }
  void RouterAuxLoss(Queue& queue, const RouterForm& form, const AuxLossForm& aux,
                     const Tensor& logits, const Tensor& scores, const Tensor& experts,
                     double gradient_scale, const Tensor& loss, const Tensor& dlogits) override {
    Around("RouterAuxLoss", [&] {
      target_.RouterAuxLoss(queue, form, aux, logits, scores, experts, gradient_scale, loss,
                            dlogits);
    });
  }
  void SortByExpert(Queue& queue, const SortForm& form, const Tensor& experts,
                    const Tensor& weights, const ExpertRows& sorted, const Tensor& dropped,
                    const Tensor& overflows) override {
    Around("SortByExpert", [&] {
      target_.SortByExpert(queue, form, experts, weights, sorted, dropped, overflows);
    });
  }
  void Permute(Queue& queue, const ExpertRows& sorted, const Tensor& x, const Tensor& weights,
               const Tensor& y, const Tensor& row_weights) override {
    Around("Permute", [&] { target_.Permute(queue, sorted, x, weights, y, row_weights); });
  }
  void Unpermute(Queue& queue, const ExpertRows& sorted, const Tensor& x, const Tensor& row_weights,
                 const Tensor& y, const Tensor& weights) override {
    Around("Unpermute", [&] { target_.Unpermute(queue, sorted, x, row_weights, y, weights); });
  }
  void PlanExchange(Queue& queue, std::int64_t rank, const Tensor& offsets,
                    const ExchangePlan& plan, const Tensor& overflows) override {
    Around("PlanExchange", [&] { target_.PlanExchange(queue, rank, offsets, plan, overflows); });
  }
  void GatherRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                  const Tensor& y) override {
    Around("GatherRows", [&] { target_.GatherRows(queue, x, index, count, y); });
  }
  void ScatterRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                   const Tensor& y) override {
    Around("ScatterRows", [&] { target_.ScatterRows(queue, x, index, count, y); });
  }
  void CountRows(Queue& queue, const Tensor& offsets, std::int64_t segments,
                 const Tensor& counts) override {
    Around("CountRows", [&] { target_.CountRows(queue, offsets, segments, counts); });
  }
  void UpdateExpertBias(Queue& queue, const Tensor& counts, double rate, const Tensor& update,
                        const Tensor& bias) override {
    Around("UpdateExpertBias",
           [&] { target_.UpdateExpertBias(queue, counts, rate, update, bias); });
  }
  void AddLosses(Queue& queue, const StepRule& rule, std::int64_t counted, const Tensor& losses,
                 const Tensor& aux_loss, const Tensor& sums, const Tensor& mean) override {
    Around("AddLosses",
           [&] { target_.AddLosses(queue, rule, counted, losses, aux_loss, sums, mean); });
  }
  void AverageOverTokens(Queue& queue, const Tensor& sums, const Tensor& update) override {
    Around("AverageOverTokens", [&] { target_.AverageOverTokens(queue, sums, update); });
  }
  void SumSquares(Queue& queue, const Tensor& x, const Tensor& update,
                  const Tensor& row_sums) override {
    Around("SumSquares", [&] { target_.SumSquares(queue, x, update, row_sums); });
  }
  void AddSquares(Queue& queue, const Tensor& row_sums, const Tensor& sums,
                  const Tensor& outcome) override {
    Around("AddSquares", [&] { target_.AddSquares(queue, row_sums, sums, outcome); });
  }
  void DecideStep(Queue& queue, const StepRule& rule, const Tensor& sums, const Tensor& has_failed,
                  const Tensor& update, const Tensor& outcome) override {
    Around("DecideStep",
           [&] { target_.DecideStep(queue, rule, sums, has_failed, update, outcome); });
  }
  void EnterPhase(Queue& queue, trainer::StepPhase phase, const Tensor& times) override {
    Around("EnterPhase", [&] { target_.EnterPhase(queue, phase, times); });
  }
  void AdamW(Queue& queue, const AdamWForm& form, const Tensor& update, const Tensor& gradient,
             const Tensor& main, const Tensor& exp_avg, const Tensor& exp_avg_sq,
             const Tensor& compute) override {
    Around("AdamW", [&] {
      target_.AdamW(queue, form, update, gradient, main, exp_avg, exp_avg_sq, compute);
    });
  }
  void Sgd(Queue& queue, const SgdForm& form, const Tensor& update, const Tensor& gradient,
           const Tensor& main, const Tensor& momentum, const Tensor& compute) override {
    Around("Sgd", [&] { target_.Sgd(queue, form, update, gradient, main, momentum, compute); });
  }

 protected:
  // Runs `call`, of the method called `name`.
  virtual void Around([[maybe_unused]] const char* name, const std::function<void()>& call) {
    call();
  }

 private:
  trainer::Ops& target_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_FORWARDING_OPS_H_
