// HostOps: the class behind MakeHostOps. Its methods are defined by theme, in one file per theme.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_HOST_OPS_IMPL_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_HOST_OPS_IMPL_H_

#include "trainer/ops/cpu/host_ops.h"
#include "trainer/ops/cpu/internal/parallel.h"

namespace ckpt::trainer {

class HostOps final : public Ops {
 public:
  explicit HostOps(const HostOpsOptions& options);

  [[nodiscard]] Status CheckSupports(const OpsNeeds& /*needs*/) const override {
    return OkStatus();
  }

  // gemm.cc, grouped_gemm.cc
  void Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
            const Tensor& d) override;
  void RouterLogitsBackward(Queue& queue, const Tensor& dlogits, const Tensor& x,
                            const Tensor& weight, const Tensor& dx,
                            const Gradient& dweight) override;
  void GroupedForward(Queue& queue, const Tensor& x, const Tensor& weights, const Tensor& offsets,
                      std::int64_t segments, const Tensor& y) override;
  void GroupedBackwardData(Queue& queue, const Tensor& dy, const Tensor& weights,
                           const Tensor& offsets, std::int64_t segments, const Tensor& dx) override;
  void GroupedBackwardWeights(Queue& queue, const Tensor& dy, const Tensor& x,
                              const Tensor& offsets, std::int64_t segments,
                              const Gradient& dweights) override;

  // elementwise.cc
  void Fill(Queue& queue, const Tensor& x, double value) override;
  void Cast(Queue& queue, const Tensor& from, const Tensor& to) override;
  void Accumulate(Queue& queue, const Tensor& from, const Tensor& to) override;
  void Add(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& out) override;
  void AddBias(Queue& queue, const Tensor& x, const Tensor& bias) override;
  void BiasBackward(Queue& queue, const Tensor& dy, const Gradient& dbias) override;

  // norm.cc
  void RmsNorm(Queue& queue, const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
               const Tensor& rstd) override;
  void AddRmsNorm(Queue& queue, const Tensor& x, const Tensor& delta, const Tensor& weight,
                  double eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) override;
  void RmsNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, bool accumulate, const Tensor& dx,
                       const Gradient& dweight) override;
  void LayerNorm(Queue& queue, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double eps, const Tensor& y, const Tensor& statistics) override;
  void LayerNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& statistics, bool accumulate, const Tensor& dx,
                         const Gradient& dweight, const Gradient& dbias) override;

  // activation.cc
  void SwiGlu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) override;
  void SwiGluBackward(Queue& queue, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
                      const Tensor& dx, const Tensor& drow_weights,
                      const Tensor& activated) override;
  void Gelu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) override;
  void GeluBackward(Queue& queue, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
                    const Tensor& dx, const Tensor& drow_weights, const Tensor& activated) override;

  // qkv.cc
  void QkvPrepare(Queue& queue, const QkvForm& form, const Tensor& qkv, const Tensor& q,
                  const Tensor& k, const Tensor& v, const Tensor& q_rstd,
                  const Tensor& k_rstd) override;
  void QkvPrepareBackward(Queue& queue, const QkvForm& form, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv, const Tensor& qkv, const Tensor& q_rstd,
                          const Tensor& k_rstd, const Tensor& dqkv, const Gradient& dq_norm,
                          const Gradient& dk_norm) override;

  // attention_parts.cc
  void SplitMlaKv(Queue& queue, const MlaShape& shape, const Tensor& kv, const Tensor& k_rope,
                  const Tensor& k, const Tensor& v) override;
  void SplitMlaKvBackward(Queue& queue, const MlaShape& shape, const Tensor& dk, const Tensor& dv,
                          const Tensor& dkv, const Tensor& dk_rope) override;
  void SplitColumns(Queue& queue, const Tensor& from, const Tensor& a, const Tensor& b) override;
  void MergeColumns(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& to) override;
  void Rope(Queue& queue, const RopeForm& form, const Tensor& cosine, const Tensor& sine,
            const Tensor& x) override;

  // attention.cc, attention_backward.cc
  void Attention(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& o, const Tensor& lse) override;
  void AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                         const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                         const Tensor& lse, const Tensor& dq, const Tensor& dk,
                         const Tensor& dv) override;

  // embedding_and_loss.cc
  void Embedding(Queue& queue, const Tensor& tokens, const Tensor& table, const Tensor& y) override;
  void EmbeddingBackward(Queue& queue, const Tensor& tokens, const Tensor& dy,
                         const Gradient& dtable) override;
  void CrossEntropy(Queue& queue, const Tensor& logits, const Tensor& labels, const Tensor& losses,
                    const Tensor& lse) override;
  void CrossEntropyBackward(Queue& queue, const Tensor& logits, const Tensor& labels,
                            const Tensor& lse, const Tensor& token_weights,
                            const Tensor& dlogits) override;

  // router.cc
  void Router(Queue& queue, const RouterForm& form, const Tensor& logits, const Tensor& expert_bias,
              const Tensor& positions, const Tensor& scores, const Tensor& experts,
              const Tensor& weights) override;
  void RouterBackward(Queue& queue, const RouterForm& form, const Tensor& scores,
                      const Tensor& experts, const Tensor& dweights,
                      const Tensor& dlogits) override;

  // expert_balance.cc
  void RouterAuxLoss(Queue& queue, const RouterForm& form, const AuxLossForm& aux,
                     const Tensor& logits, const Tensor& scores, const Tensor& experts,
                     double gradient_scale, const Tensor& loss, const Tensor& dlogits) override;
  void CountRows(Queue& queue, const Tensor& offsets, std::int64_t segments,
                 const Tensor& counts) override;
  void UpdateExpertBias(Queue& queue, const Tensor& counts, double rate, const Tensor& update,
                        const Tensor& bias) override;

  // permute.cc
  void SortByExpert(Queue& queue, const SortForm& form, const Tensor& experts,
                    const Tensor& weights, const ExpertRows& sorted, const Tensor& dropped,
                    const Tensor& overflows) override;
  void Permute(Queue& queue, const ExpertRows& sorted, const Tensor& x, const Tensor& weights,
               const Tensor& y, const Tensor& row_weights) override;
  void Unpermute(Queue& queue, const ExpertRows& sorted, const Tensor& x, const Tensor& row_weights,
                 const Tensor& y, const Tensor& weights) override;

  // exchange.cc
  void ChosenRanks(Queue& queue, const Tensor& experts, std::int64_t num_held,
                   const Tensor& ranks) override;
  void PlanExchange(Queue& queue, std::int64_t rank, const Tensor& offsets,
                    const ExchangePlan& plan, const Tensor& overflows) override;
  void GatherRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                  const Tensor& y) override;
  void ScatterRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                   const Tensor& y) override;

  // optimizer.cc
  void SumSquares(Queue& queue, std::span<const RowSquares> all) override;
  void AdamW(Queue& queue, const AdamWForm& form, const Tensor& update, const GradientSum& gradient,
             const Tensor& main, const Tensor& exp_avg, const Tensor& exp_avg_sq,
             const WeightCopies& copies) override;
  void Sgd(Queue& queue, const SgdForm& form, const Tensor& update, const GradientSum& gradient,
           const Tensor& main, const Tensor& momentum, const WeightCopies& copies) override;

  // step_scalars.cc
  void AddLosses(Queue& queue, const StepRule& rule, std::int64_t counted, const Tensor& losses,
                 const Tensor& aux_loss, const Tensor& sums, const Tensor& mean) override;
  void AverageOverTokens(Queue& queue, const Tensor& sums, const Tensor& update) override;
  void AddSquares(Queue& queue, const Tensor& row_sums, const Tensor& update, const Tensor& sums,
                  const Tensor& outcome) override;
  void DecideStep(Queue& queue, const StepRule& rule, const Tensor& sums, const Tensor& has_failed,
                  const Tensor& update, const Tensor& outcome) override;
  void EnterPhase(Queue& queue, StepPhase phase, const Tensor& times) override;

 private:
  const bool fixed_order_;
  Parallel parallel_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_HOST_OPS_IMPL_H_
