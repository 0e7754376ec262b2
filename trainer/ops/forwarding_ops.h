// ForwardingOps: an Ops that hands every call on, and knows what work it is. What changes a call,
// or does something around all of them, derives from it.
#ifndef CKPT_TRAINER_OPS_FORWARDING_OPS_H_
#define CKPT_TRAINER_OPS_FORWARDING_OPS_H_

#include <cstdint>
#include <functional>

#include "trainer/ops/op_work.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(Ops& target) : target_(target) {}

  [[nodiscard]] Status CheckSupports(const OpsNeeds& needs) const override {
    return target_.CheckSupports(needs);
  }

  void Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
            const Tensor& d) override {
    Around(queue, GemmWork(form, a, b, d), [&] { target_.Gemm(queue, form, a, b, d); });
  }
  void GroupedForward(Queue& queue, const Tensor& x, const Tensor& weights, const Tensor& offsets,
                      std::int64_t segments, const Tensor& y) override {
    Around(queue, GroupedWork("GroupedForward", x, weights, offsets, y),
           [&] { target_.GroupedForward(queue, x, weights, offsets, segments, y); });
  }
  void GroupedBackwardData(Queue& queue, const Tensor& dy, const Tensor& weights,
                           const Tensor& offsets, std::int64_t segments,
                           const Tensor& dx) override {
    Around(queue, GroupedWork("GroupedBackwardData", dy, weights, offsets, dx),
           [&] { target_.GroupedBackwardData(queue, dy, weights, offsets, segments, dx); });
  }
  void GroupedBackwardWeights(Queue& queue, const Tensor& dy, const Tensor& x,
                              const Tensor& offsets, std::int64_t segments,
                              const Gradient& dweights) override {
    Around(queue, GroupedWeightsWork(dy, x, offsets, dweights),
           [&] { target_.GroupedBackwardWeights(queue, dy, x, offsets, segments, dweights); });
  }
  void Fill(Queue& queue, const Tensor& x, double value) override {
    Around(queue, {.name = "Fill", .bytes = Bytes(x)}, [&] { target_.Fill(queue, x, value); });
  }
  void Cast(Queue& queue, const Tensor& from, const Tensor& to) override {
    Around(queue, {.name = "Cast", .bytes = Bytes(from, to)},
           [&] { target_.Cast(queue, from, to); });
  }
  void Accumulate(Queue& queue, const Tensor& from, const Tensor& to) override {
    Around(queue, {.name = "Accumulate", .bytes = Bytes(from, to, to)},
           [&] { target_.Accumulate(queue, from, to); });
  }
  void Add(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& out) override {
    Around(queue, {.name = "Add", .bytes = Bytes(a, b, out)},
           [&] { target_.Add(queue, a, b, out); });
  }
  void AddBias(Queue& queue, const Tensor& x, const Tensor& bias) override {
    Around(queue, {.name = "AddBias", .bytes = Bytes(x, x, bias)},
           [&] { target_.AddBias(queue, x, bias); });
  }
  void BiasBackward(Queue& queue, const Tensor& dy, const Gradient& dbias) override {
    Around(queue, {.name = "BiasBackward", .bytes = Bytes(dy) + WriteBytes(dbias)},
           [&] { target_.BiasBackward(queue, dy, dbias); });
  }
  void RmsNorm(Queue& queue, const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
               const Tensor& rstd) override {
    Around(queue, {.name = "RmsNorm", .bytes = Bytes(x, weight, y, rstd)},
           [&] { target_.RmsNorm(queue, x, weight, eps, y, rstd); });
  }
  void AddRmsNorm(Queue& queue, const Tensor& x, const Tensor& delta, const Tensor& weight,
                  double eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) override {
    Around(queue, {.name = "AddRmsNorm", .bytes = Bytes(x, delta, weight, sum, y, rstd)},
           [&] { target_.AddRmsNorm(queue, x, delta, weight, eps, sum, y, rstd); });
  }
  void RmsNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, bool accumulate, const Tensor& dx,
                       const Gradient& dweight) override {
    Around(queue,
           {.name = "RmsNormBackward",
            .bytes = Bytes(dy, x, weight, rstd, dx) + (accumulate ? Bytes(dx) : 0) +
                     WriteBytes(dweight)},
           [&] { target_.RmsNormBackward(queue, dy, x, weight, rstd, accumulate, dx, dweight); });
  }
  void LayerNorm(Queue& queue, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 double eps, const Tensor& y, const Tensor& statistics) override {
    Around(queue, {.name = "LayerNorm", .bytes = Bytes(x, weight, bias, y, statistics)},
           [&] { target_.LayerNorm(queue, x, weight, bias, eps, y, statistics); });
  }
  void LayerNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& statistics, bool accumulate, const Tensor& dx,
                         const Gradient& dweight, const Gradient& dbias) override {
    Around(queue,
           {.name = "LayerNormBackward",
            .bytes = Bytes(dy, x, weight, statistics, dx) + (accumulate ? Bytes(dx) : 0) +
                     WriteBytes(dweight) + WriteBytes(dbias)},
           [&] {
             target_.LayerNormBackward(queue, dy, x, weight, statistics, accumulate, dx, dweight,
                                       dbias);
           });
  }
  void SwiGlu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) override {
    Around(queue, {.name = "SwiGlu", .bytes = Bytes(x, rows.weights, y)},
           [&] { target_.SwiGlu(queue, x, rows, y); });
  }
  void SwiGluBackward(Queue& queue, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
                      const Tensor& dx, const Tensor& drow_weights,
                      const Tensor& activated) override {
    Around(queue,
           {.name = "SwiGluBackward",
            .bytes = Bytes(dy, x, rows.weights, dx, drow_weights, activated)},
           [&] { target_.SwiGluBackward(queue, dy, x, rows, dx, drow_weights, activated); });
  }
  void Gelu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) override {
    Around(queue, {.name = "Gelu", .bytes = Bytes(x, rows.weights, y)},
           [&] { target_.Gelu(queue, x, rows, y); });
  }
  void GeluBackward(Queue& queue, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
                    const Tensor& dx, const Tensor& drow_weights,
                    const Tensor& activated) override {
    Around(
        queue,
        {.name = "GeluBackward", .bytes = Bytes(dy, x, rows.weights, dx, drow_weights, activated)},
        [&] { target_.GeluBackward(queue, dy, x, rows, dx, drow_weights, activated); });
  }
  void QkvPrepare(Queue& queue, const QkvForm& form, const Tensor& qkv, const Tensor& q,
                  const Tensor& k, const Tensor& v, const Tensor& q_rstd,
                  const Tensor& k_rstd) override {
    Around(queue,
           {.name = "QkvPrepare",
            .bytes = 2 * Bytes(q, k, v) + Bytes(q_rstd, k_rstd) + TableBytes(form)},
           [&] { target_.QkvPrepare(queue, form, qkv, q, k, v, q_rstd, k_rstd); });
  }
  void QkvPrepareBackward(Queue& queue, const QkvForm& form, const Tensor& dq, const Tensor& dk,
                          const Tensor& dv, const Tensor& qkv, const Tensor& q_rstd,
                          const Tensor& k_rstd, const Tensor& dqkv, const Gradient& dq_norm,
                          const Gradient& dk_norm) override {
    Around(queue,
           {.name = "QkvPrepareBackward",
            .bytes = 2 * Bytes(dq, dk, dv) + (form.q_norm ? Bytes(dq, dk, q_rstd, k_rstd) : 0) +
                     TableBytes(form) + WriteBytes(dq_norm) + WriteBytes(dk_norm)},
           [&] {
             target_.QkvPrepareBackward(queue, form, dq, dk, dv, qkv, q_rstd, k_rstd, dqkv, dq_norm,
                                        dk_norm);
           });
  }
  void SplitMlaKv(Queue& queue, const MlaShape& shape, const Tensor& kv, const Tensor& k_rope,
                  const Tensor& k, const Tensor& v) override {
    Around(queue, {.name = "SplitMlaKv", .bytes = Bytes(kv, k_rope, k, v)},
           [&] { target_.SplitMlaKv(queue, shape, kv, k_rope, k, v); });
  }
  void SplitMlaKvBackward(Queue& queue, const MlaShape& shape, const Tensor& dk, const Tensor& dv,
                          const Tensor& dkv, const Tensor& dk_rope) override {
    Around(queue, {.name = "SplitMlaKvBackward", .bytes = Bytes(dk, dv, dkv, dk_rope)},
           [&] { target_.SplitMlaKvBackward(queue, shape, dk, dv, dkv, dk_rope); });
  }
  void SplitColumns(Queue& queue, const Tensor& from, const Tensor& a, const Tensor& b) override {
    Around(queue, {.name = "SplitColumns", .bytes = Bytes(from, a, b)},
           [&] { target_.SplitColumns(queue, from, a, b); });
  }
  void MergeColumns(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& to) override {
    Around(queue, {.name = "MergeColumns", .bytes = Bytes(a, b, to)},
           [&] { target_.MergeColumns(queue, a, b, to); });
  }
  void Rope(Queue& queue, const RopeForm& form, const Tensor& cosine, const Tensor& sine,
            const Tensor& x) override {
    Around(queue,
           {.name = "Rope",
            .bytes = 2 * Bytes(x) * static_cast<double>(form.dim) /
                         static_cast<double>(x.dim(x.ndim - 1)) +
                     Bytes(cosine, sine, form.positions)},
           [&] { target_.Rope(queue, form, cosine, sine, x); });
  }
  void Attention(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& o, const Tensor& lse) override {
    Around(queue, AttentionWork("Attention", shape, 1, 1, Bytes(q, k, v, o, lse)),
           [&] { target_.Attention(queue, shape, q, k, v, o, lse); });
  }
  void AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                         const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                         const Tensor& lse, const Tensor& dq, const Tensor& dk,
                         const Tensor& dv) override {
    Around(queue,
           AttentionWork("AttentionBackward", shape, 3, 2, Bytes(d_o, q, k, v, o, lse, dq, dk, dv)),
           [&] { target_.AttentionBackward(queue, shape, d_o, q, k, v, o, lse, dq, dk, dv); });
  }
  void Embedding(Queue& queue, const Tensor& tokens, const Tensor& table,
                 const Tensor& y) override {
    Around(queue, {.name = "Embedding", .bytes = Bytes(tokens, y, y)},
           [&] { target_.Embedding(queue, tokens, table, y); });
  }
  void EmbeddingBackward(Queue& queue, const Tensor& tokens, const Tensor& dy,
                         const Gradient& dtable) override {
    Around(queue,
           {.name = "EmbeddingBackward",
            .bytes = Bytes(tokens, dy) + (dtable.adds() ? 2 * Bytes(dy) : WriteBytes(dtable))},
           [&] { target_.EmbeddingBackward(queue, tokens, dy, dtable); });
  }
  void CrossEntropy(Queue& queue, const Tensor& logits, const Tensor& labels, const Tensor& losses,
                    const Tensor& lse) override {
    Around(queue, {.name = "CrossEntropy", .bytes = Bytes(logits, labels, losses, lse)},
           [&] { target_.CrossEntropy(queue, logits, labels, losses, lse); });
  }
  void CrossEntropyBackward(Queue& queue, const Tensor& logits, const Tensor& labels,
                            const Tensor& lse, const Tensor& token_weights,
                            const Tensor& dlogits) override {
    Around(
        queue,
        {.name = "CrossEntropyBackward",
         .bytes = Bytes(logits, labels, lse, token_weights, dlogits)},
        [&] { target_.CrossEntropyBackward(queue, logits, labels, lse, token_weights, dlogits); });
  }
  void Router(Queue& queue, const RouterForm& form, const Tensor& logits, const Tensor& expert_bias,
              const Tensor& positions, const Tensor& scores, const Tensor& experts,
              const Tensor& weights) override {
    Around(queue,
           {.name = "Router",
            .bytes = Bytes(logits, expert_bias, positions, scores, experts, weights)},
           [&] {
             target_.Router(queue, form, logits, expert_bias, positions, scores, experts, weights);
           });
  }
  void RouterBackward(Queue& queue, const RouterForm& form, const Tensor& scores,
                      const Tensor& experts, const Tensor& dweights,
                      const Tensor& dlogits) override {
    Around(queue, {.name = "RouterBackward", .bytes = Bytes(scores, experts, dweights, dlogits)},
           [&] { target_.RouterBackward(queue, form, scores, experts, dweights, dlogits); });
  }
  void RouterLogitsBackward(Queue& queue, const Tensor& dlogits, const Tensor& x,
                            const Tensor& weight, const Tensor& dx,
                            const Gradient& dweight) override {
    Around(queue,
           {.name = "RouterLogitsBackward",
            .bytes = Bytes(dlogits, x, weight, dx, dx) + WriteBytes(dweight),
            .flops = 4 * static_cast<double>(dlogits.num_elems() * x.dim(1))},
           [&] { target_.RouterLogitsBackward(queue, dlogits, x, weight, dx, dweight); });
  }
  void RouterAuxLoss(Queue& queue, const RouterForm& form, const AuxLossForm& aux,
                     const Tensor& logits, const Tensor& scores, const Tensor& experts,
                     double gradient_scale, const Tensor& loss, const Tensor& dlogits) override {
    Around(queue,
           {.name = "RouterAuxLoss", .bytes = Bytes(logits, scores, experts, dlogits, dlogits)},
           [&] {
             target_.RouterAuxLoss(queue, form, aux, logits, scores, experts, gradient_scale, loss,
                                   dlogits);
           });
  }
  void SortByExpert(Queue& queue, const SortForm& form, const Tensor& experts,
                    const Tensor& weights, const ExpertRows& sorted, const Tensor& dropped,
                    const Tensor& overflows) override {
    Around(
        queue,
        {.name = "SortByExpert",
         .bytes = Bytes(experts, sorted.rows, sorted.choices, sorted.offsets) +
                  (form.capacity > 0 ? Bytes(weights) : 0)},
        [&] { target_.SortByExpert(queue, form, experts, weights, sorted, dropped, overflows); });
  }
  void Permute(Queue& queue, const ExpertRows& sorted, const Tensor& x, const Tensor& weights,
               const Tensor& y, const Tensor& row_weights) override {
    Around(queue, {.name = "Permute", .bytes = Bytes(sorted.choices, x, weights, y, row_weights)},
           [&] { target_.Permute(queue, sorted, x, weights, y, row_weights); });
  }
  void Unpermute(Queue& queue, const ExpertRows& sorted, const Tensor& x, const Tensor& row_weights,
                 const Tensor& y, const Tensor& weights) override {
    Around(queue, {.name = "Unpermute", .bytes = Bytes(sorted.rows, x, row_weights, y, weights)},
           [&] { target_.Unpermute(queue, sorted, x, row_weights, y, weights); });
  }
  void ChosenRanks(Queue& queue, const Tensor& experts, std::int64_t num_held,
                   const Tensor& ranks) override {
    Around(queue, {.name = "ChosenRanks", .bytes = Bytes(experts, ranks)},
           [&] { target_.ChosenRanks(queue, experts, num_held, ranks); });
  }
  void PlanExchange(Queue& queue, std::int64_t rank, const Tensor& offsets,
                    const ExchangePlan& plan, const Tensor& overflows) override {
    Around(queue,
           {.name = "PlanExchange",
            .bytes = Bytes(offsets, plan.send_rows, plan.receive_rows, plan.arrival, plan.offsets)},
           [&] { target_.PlanExchange(queue, rank, offsets, plan, overflows); });
  }
  void GatherRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                  const Tensor& y) override {
    Around(queue, {.name = "GatherRows", .bytes = Bytes(x, index, y)},
           [&] { target_.GatherRows(queue, x, index, count, y); });
  }
  void ScatterRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                   const Tensor& y) override {
    Around(queue, {.name = "ScatterRows", .bytes = Bytes(x, index, y)},
           [&] { target_.ScatterRows(queue, x, index, count, y); });
  }
  void CountRows(Queue& queue, const Tensor& offsets, std::int64_t segments,
                 const Tensor& counts) override {
    Around(queue, {.name = "CountRows", .bytes = Bytes(offsets, counts, counts)},
           [&] { target_.CountRows(queue, offsets, segments, counts); });
  }
  void UpdateExpertBias(Queue& queue, const Tensor& counts, double rate, const Tensor& update,
                        const Tensor& bias) override {
    Around(queue, {.name = "UpdateExpertBias", .bytes = Bytes(counts, bias, bias)},
           [&] { target_.UpdateExpertBias(queue, counts, rate, update, bias); });
  }
  void AddLosses(Queue& queue, const StepRule& rule, std::int64_t counted, const Tensor& losses,
                 const Tensor& aux_loss, const Tensor& sums, const Tensor& mean) override {
    Around(queue, {.name = "AddLosses", .bytes = Bytes(losses, aux_loss, sums, sums, mean)},
           [&] { target_.AddLosses(queue, rule, counted, losses, aux_loss, sums, mean); });
  }
  void AverageOverTokens(Queue& queue, const Tensor& sums, const Tensor& update) override {
    Around(queue, {.name = "AverageOverTokens", .bytes = Bytes(sums, update)},
           [&] { target_.AverageOverTokens(queue, sums, update); });
  }
  void SumSquares(Queue& queue, std::span<const RowSquares> all) override {
    double bytes = 0;
    for (const RowSquares& rows : all) bytes += Bytes(rows.x, rows.sums);
    Around(queue, {.name = "SumSquares", .bytes = bytes}, [&] { target_.SumSquares(queue, all); });
  }
  void AddSquares(Queue& queue, const Tensor& row_sums, const Tensor& update, const Tensor& sums,
                  const Tensor& outcome) override {
    Around(queue, {.name = "AddSquares", .bytes = Bytes(row_sums, sums, sums)},
           [&] { target_.AddSquares(queue, row_sums, update, sums, outcome); });
  }
  void DecideStep(Queue& queue, const StepRule& rule, const Tensor& sums, const Tensor& has_failed,
                  const Tensor& update, const Tensor& outcome) override {
    Around(queue, {.name = "DecideStep", .bytes = Bytes(sums, update, outcome)},
           [&] { target_.DecideStep(queue, rule, sums, has_failed, update, outcome); });
  }
  void EnterPhase(Queue& queue, StepPhase phase, const Tensor& times) override {
    Around(queue, {.name = "EnterPhase", .bytes = Bytes(times, times)},
           [&] { target_.EnterPhase(queue, phase, times); });
  }
  void AdamW(Queue& queue, const AdamWForm& form, const Tensor& update, const GradientSum& gradient,
             const Tensor& main, const Tensor& exp_avg, const Tensor& exp_avg_sq,
             const WeightCopies& copies) override {
    Around(
        queue,
        {.name = "AdamW",
         .bytes = Bytes(gradient, copies.own, copies.other) + 2 * Bytes(main, exp_avg, exp_avg_sq)},
        [&] { target_.AdamW(queue, form, update, gradient, main, exp_avg, exp_avg_sq, copies); });
  }
  void Sgd(Queue& queue, const SgdForm& form, const Tensor& update, const GradientSum& gradient,
           const Tensor& main, const Tensor& momentum, const WeightCopies& copies) override {
    Around(queue,
           {.name = "Sgd",
            .bytes = Bytes(gradient, copies.own, copies.other) + 2 * Bytes(main, momentum)},
           [&] { target_.Sgd(queue, form, update, gradient, main, momentum, copies); });
  }

 protected:
  // Runs `call`, which puts `work` on `queue`.
  virtual void Around([[maybe_unused]] Queue& queue, [[maybe_unused]] const OpWork& work,
                      const std::function<void()>& call) {
    call();
  }

 private:
  // Of every operand that is there.
  template <typename... Tensors>
  static double Bytes(const Tensors&... tensors) {
    return (0.0 + ... + (tensors ? static_cast<double>(tensors.size_bytes()) : 0.0));
  }
  static double WriteBytes(const Gradient& gradient) {
    return (gradient.adds() ? 2 : 1) * Bytes(gradient.tensor);
  }
  static double TableBytes(const QkvForm& form) {
    return Bytes(form.q_norm, form.k_norm, form.cosine, form.sine, form.rope.positions);
  }

  // `count` products of m, n and k on average.
  static OpWork ProductWork(const char* name, double m, double n, double k, std::int64_t count,
                            double bytes) {
    return {.name = name,
            .product = {static_cast<std::int64_t>(m), static_cast<std::int64_t>(n),
                        static_cast<std::int64_t>(k)},
            .num_products = count,
            .bytes = bytes,
            .flops = 2 * m * n * k * static_cast<double>(count)};
  }
  static OpWork GemmWork(const GemmForm& form, const Tensor& a, const Tensor& b, const Tensor& d) {
    const char* const name =
        form.transpose_a ? "GemmWeights" : (form.transpose_b ? "GemmForward" : "GemmData");
    return ProductWork(name, static_cast<double>(d.dim(0)), static_cast<double>(d.dim(1)),
                       static_cast<double>(a.dim(form.transpose_a ? 0 : 1)), 1,
                       Bytes(a, b, d) + (form.accumulate ? Bytes(d) : 0));
  }
  // `rows` of all experts.
  static double MeanRows(std::int64_t rows, std::int64_t experts) {
    return static_cast<double>(rows) / static_cast<double>(experts);
  }
  static OpWork GroupedWork(const char* name, const Tensor& x, const Tensor& weights,
                            const Tensor& offsets, const Tensor& y) {
    const std::int64_t experts = weights.dim(0);
    return ProductWork(name, MeanRows(x.dim(0), experts), static_cast<double>(y.dim(1)),
                       static_cast<double>(x.dim(1)), experts, Bytes(x, weights, offsets, y));
  }
  static OpWork GroupedWeightsWork(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                   const Gradient& dweights) {
    const std::int64_t experts = dweights.tensor.dim(0);
    return ProductWork("GroupedBackwardWeights", static_cast<double>(dy.dim(1)),
                       static_cast<double>(x.dim(1)), MeanRows(x.dim(0), experts), experts,
                       Bytes(dy, x, offsets) + WriteBytes(dweights));
  }
  // Of every pair of a query and a key that it sees: products over the dims of queries and keys,
  // and over those of values.
  static OpWork AttentionWork(const char* name, const AttentionShape& shape, int qk_products,
                              int v_products, double bytes) {
    const auto seq = static_cast<double>(shape.seq);
    const auto window =
        shape.window > 0 && shape.window < shape.seq ? static_cast<double>(shape.window) : seq;
    const double pairs = window * (window + 1) / 2 + (seq - window) * window;
    const auto width = static_cast<double>(qk_products * shape.qk_dim + v_products * shape.v_dim);
    return {.name = name,
            .bytes = bytes,
            .flops = 2 * static_cast<double>(shape.batch * shape.num_heads) * pairs * width};
  }

  Ops& target_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_FORWARDING_OPS_H_
