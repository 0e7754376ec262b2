// Ops: all computations of the model, the optimizer and the trainer that run on a device.
#ifndef CKPT_TRAINER_OPS_OPS_H_
#define CKPT_TRAINER_OPS_OPS_H_

#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "core/tensor/dtype.h"
#include "trainer/device/queue.h"
#include "trainer/device/tensor.h"
#include "trainer/ops/gradient.h"
#include "trainer/ops/moe_specs.h"
#include "trainer/ops/step_scalars.h"

namespace ckpt::trainer {

// Shapes are in brackets: T tokens (= B batch × S sequence), H hidden size, N query heads, G
// key/value heads, D head dim, F feed-forward size, E experts, K experts per token, R rows sorted
// by expert, V vocabulary.
//
// Every call enqueues its work and returns. Operands are contiguous and stay valid until the queue
// has run the work. They do not overlap unless a comment allows it. Activations and weights have
// the compute dtype: float32, float64 (for tests), or bfloat16, which is computed in float32 and
// rounded on store. Statistics (`rstd`, `lse`, losses, router scores) are float32; with float64
// they are float64.
//
// Gradients of parameters are stored or added, as their `Gradient` says; `d… = …` below means
// either. Their dtype is float32, float64, bfloat16, or int64 for fixed-point gradients
// (trainer/ops/fixed_point.h), whose sums are exact and so the same in every order.
//
// Wrong shapes or dtypes are the caller's bugs and abort (CKPT_CHECK).

struct GemmForm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // d += …
};

// On the device: where the examples are that share sequences. Without tensors, every sequence is
// one example. An example and the padding after it are within one sequence.
struct ExampleBounds {
  // int32 [n + 1], ascending from 0 to T: example e begins at token cu_seqlens[e]. Empty examples
  // are allowed anywhere, so that n can be constant.
  Tensor cu_seqlens = {};
  // int32 [n]: the number of tokens of each example. Tokens between its end and the next example
  // are padding.
  Tensor lengths = {};
};

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t num_heads = 0;     // N
  std::int64_t num_kv_heads = 0;  // G; query head n uses key/value head n / (N / G)
  std::int64_t qk_dim = 0;        // D of queries and keys
  std::int64_t v_dim = 0;         // D of values and of the result
  // Elements from one value head to the next, in v and dv alike; 0: v_dim. So values can stay in a
  // fused projection. A token's heads are followed by those of the next token.
  std::int64_t v_stride = 0;
  double scale = 1;
  std::int64_t window = 0;      // a query q sees keys q - window < k <= q; 0: all keys k <= q
  ExampleBounds examples = {};  // a query sees only keys of its own example
};

// Rotates `dim` elements of every head: the first ones if `at_front`, otherwise the last ones.
struct RopeForm {
  std::int64_t seq = 0;   // positions in the tables; token t has position t mod seq
  Tensor positions = {};  // or int32 [T]: positions below seq; negative: padding, not rotated
  std::int64_t dim = 0;   // rotated elements of a head
  bool at_front = true;   // the first `dim` elements, otherwise the last
  // Pairs are (2i, 2i+1), otherwise (i, i + dim/2). Results are stored where the operands were.
  bool interleaved = false;
  bool inverse = false;  // rotates back, which is the backward of the rotation
};

// The order of a fused projection: for each key/value head its N/G query heads, its key and its
// value (Megatron's linear_qkv), D elements each.
struct QkvShape {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
};

// What turns a fused projection into queries and keys. What is null is left out.
struct QkvForm {
  QkvShape shape;
  Tensor q_norm = {};  // [D]: weights of a norm over every head, of queries and keys or of neither
  Tensor k_norm = {};
  double norm_eps = 0;
  RopeForm rope = {};  // of the forward, also in the backward
  Tensor cosine = {};
  Tensor sine = {};
};

// Multi-head latent attention: q [T, N, dn+dr]; kv [T, N, dn+dv], computed from the latent; k_rope
// [T, dr], which all heads share.
struct MlaShape {
  std::int64_t num_heads = 0;
  std::int64_t nope_dim = 0;  // dn
  std::int64_t rope_dim = 0;  // dr
  std::int64_t v_dim = 0;     // dv
};

// The rows that choices have at experts, in device memory. There is room for R rows, which is a
// bound that the host knows. How many are in use is known on the device only, by the last offset.
// Operations on such rows neither read nor write the rows that are not in use.
struct ExpertRows {
  Tensor rows;     // int32 [T, K]: the row of each choice; -1: none
  Tensor choices;  // int32 [R]: the choice t·K + k of each row; -1: the row belongs to no choice
  Tensor offsets;  // int32 [E + 1]: expert e has the rows [offsets[e], offsets[e + 1])

  // int32 [1]: the rows in use.
  [[nodiscard]] Tensor count() const { return offsets.Rows(offsets.dim(0) - 1, 1); }
};

// How the rows of P ranks travel to the ranks of their experts, E/P on each; in device memory.
struct ExchangePlan {
  Tensor send_rows;     // int64 [P]: rows from here to each rank
  Tensor receive_rows;  // int64 [P]: rows from each rank to here
  Tensor arrival;       // int32 [R]: which of the received rows is each row of the experts here
  // int32 [E/P · segments + 1]: the rows of the experts here, in the form of grouped products.
  Tensor offsets;

  // int32 [1]: the rows in use.
  [[nodiscard]] Tensor count() const { return offsets.Rows(offsets.dim(0) - 1, 1); }
};

// What an activation knows about its rows. Dense blocks have neither.
struct ActivationRows {
  Tensor weights = {};  // [rows], of the statistics' dtype: the routing weight p; null: 1
  Tensor count = {};    // int32 [1]: the rows in use; null: all
};

// Where sums of squares come from and go.
struct RowSquares {
  GradientSum x;     // [rows, D], of any dtype of gradients
  Tensor sums = {};  // [rows], float64
};

// Where an update writes the new weights, cast: to the array with which this rank computes, and to
// that of one other rank. Null: nowhere. Both have one dtype.
struct WeightCopies {
  Tensor own = {};
  Tensor other = {};

  WeightCopies() = default;
  WeightCopies(const Tensor& compute) : own(compute) {}  // NOLINT: an array is a copy
  WeightCopies(const Tensor& of_this_rank, const Tensor& of_other)
      : own(of_this_rank), other(of_other) {
    CKPT_CHECK(!other || (other.dtype == own.dtype && other.num_elems() == own.num_elems()));
  }

  // The same part of each.
  [[nodiscard]] WeightCopies Rows(std::int64_t begin, std::int64_t rows) const {
    return {own ? own.Rows(begin, rows) : Tensor(), other ? other.Rows(begin, rows) : Tensor()};
  }
};

// What does not change from update to update. The rest is in UpdateScalars, on the device.
struct AdamWForm {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // decay as p -= lr·wd·p (AdamW); otherwise g += wd·p (Adam with L2)
};

struct SgdForm {
  double momentum = 0;
  double weight_decay = 0;
};

// What a run asks of a backend.
struct OpsNeeds {
  DType compute = DType::kFloat32;
  DType gradients = DType::kFloat32;  // int64: fixed point
};

class Ops {
 public:
  virtual ~Ops() = default;

  // Refuses what the backend cannot compute, before anything is allocated for it. Errors:
  // kUnsupported, all at once, each with what it can compute.
  [[nodiscard]] virtual Status CheckSupports(const OpsNeeds& needs) const = 0;

  // --- matrix products ---------------------------------------------------------------------------
  // d [m, n] = op(a) [m, k] · op(b) [k, n]. d has the dtype of a and b, or any dtype of gradients.
  // Sums are rounded to d's dtype only: bfloat16 operands give float32 results as precise as those
  // of the same operands in float32. Router logits are such a product.
  virtual void Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
                    const Tensor& d) = 0;
  // Products of ranges of rows, where each range uses one matrix of w [E, O, I]: rows [offsets[s],
  // offsets[s+1]) use w[s / segments]. A matrix has `segments` ranges (more than one only for sums
  // that do not depend on the mesh). offsets: int32 [E·segments + 1], on the device, ascending.
  // Rows before the first and after the last range are not touched.
  //   forward:          y [R, O] = x [R, I] · w[e]ᵀ,  w[e] [O, I]
  //   backward data:    dx [R, I] = dy [R, O] · w[e]
  //   backward weights: dw[e] [O, I] = dy[rows]ᵀ · x[rows], one range at a time; 0 without rows
  virtual void GroupedForward(Queue& queue, const Tensor& x, const Tensor& weights,
                              const Tensor& offsets, std::int64_t segments, const Tensor& y) = 0;
  virtual void GroupedBackwardData(Queue& queue, const Tensor& dy, const Tensor& weights,
                                   const Tensor& offsets, std::int64_t segments,
                                   const Tensor& dx) = 0;
  virtual void GroupedBackwardWeights(Queue& queue, const Tensor& dy, const Tensor& x,
                                      const Tensor& offsets, std::int64_t segments,
                                      const Gradient& dweights) = 0;

  // --- element-wise and rows ---------------------------------------------------------------------
  virtual void Fill(Queue& queue, const Tensor& x, double value) = 0;
  // Between float32, float64 and bfloat16; or between int64 fixed point and a float dtype. Both
  // tensors have the same number of elements.
  virtual void Cast(Queue& queue, const Tensor& from, const Tensor& to) = 0;
  // to += from, cast as above. `to` may have any dtype of gradients.
  virtual void Accumulate(Queue& queue, const Tensor& from, const Tensor& to) = 0;
  // out = a + b; `out` may be `a` or `b`.
  virtual void Add(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& out) = 0;
  // x [T, O] += bias [O].
  virtual void AddBias(Queue& queue, const Tensor& x, const Tensor& bias) = 0;
  virtual void BiasBackward(Queue& queue, const Tensor& dy, const Gradient& dbias) = 0;

  // y = w · x·rstd, where rstd = (mean(x²) + eps)^-½ over the last dim; x [rows, D], w [D], rstd
  // [rows].
  virtual void RmsNorm(Queue& queue, const Tensor& x, const Tensor& weight, double eps,
                       const Tensor& y, const Tensor& rstd) = 0;
  // sum = x + delta; y and rstd as RmsNorm of `sum`, after it was rounded to the compute dtype.
  // `sum` may be x or delta; then y may be the other of the two. Its backward is RmsNormBackward of
  // `sum`, which adds to the gradient of the sum that came from elsewhere; the result is the
  // gradient of both x and delta.
  virtual void AddRmsNorm(Queue& queue, const Tensor& x, const Tensor& delta, const Tensor& weight,
                          double eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) = 0;
  // dx = …, or dx += … if `accumulate`. dx may be dy.
  virtual void RmsNormBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, const Tensor& rstd, bool accumulate,
                               const Tensor& dx, const Gradient& dweight) = 0;
  // y = w·(x - mean)·rstd + b; statistics: mean and rstd [rows, 2].
  virtual void LayerNorm(Queue& queue, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         double eps, const Tensor& y, const Tensor& statistics) = 0;
  virtual void LayerNormBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                                 const Tensor& weight, const Tensor& statistics, bool accumulate,
                                 const Tensor& dx, const Gradient& dweight,
                                 const Gradient& dbias) = 0;

  // Feed-forward activations. x [rows, 2F] is gate then up. y [rows, F] = silu(gate)·up·p.
  virtual void SwiGlu(Queue& queue, const Tensor& x, const ActivationRows& rows,
                      const Tensor& y) = 0;
  // dx may be x. drow_weights [rows] is overwritten; it is null if rows.weights is. `activated`
  // gets the bits that the forward gave for y, so that they need not be kept; it may be dy or null.
  virtual void SwiGluBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                              const ActivationRows& rows, const Tensor& dx,
                              const Tensor& drow_weights, const Tensor& activated) = 0;
  // Megatron's default activation in erf form: y = gelu(x)·p.
  virtual void Gelu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) = 0;
  virtual void GeluBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                            const ActivationRows& rows, const Tensor& dx,
                            const Tensor& drow_weights, const Tensor& activated) = 0;

  // --- attention ---------------------------------------------------------------------------------
  // qkv [T, (N + 2G)·D] to q [T, N, D], k [T, G, D] and v [T, G, D]. Queries and keys are
  // normalised as by RmsNorm, with q_rstd [T·N] and k_rstd [T·G], then rotated as by Rope; the
  // results of both steps are rounded to the compute dtype. Values are copied; if v is null, they
  // stay in their places (AttentionShape::v_stride).
  virtual void QkvPrepare(Queue& queue, const QkvForm& form, const Tensor& qkv, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& q_rstd,
                          const Tensor& k_rstd) = 0;
  // dq and dk are rotated back and rounded, and may be overwritten. If dv is null, it is in its
  // place in dqkv already. qkv and the statistics are read only with norms.
  virtual void QkvPrepareBackward(Queue& queue, const QkvForm& form, const Tensor& dq,
                                  const Tensor& dk, const Tensor& dv, const Tensor& qkv,
                                  const Tensor& q_rstd, const Tensor& k_rstd, const Tensor& dqkv,
                                  const Gradient& dq_norm, const Gradient& dk_norm) = 0;
  // kv [T, N, dn+dv] and k_rope [T, dr] to k [T, N, dn+dr], whose last dr elements are the same in
  // all heads, and v [T, N, dv]. The backward sums dk_rope over the heads.
  virtual void SplitMlaKv(Queue& queue, const MlaShape& shape, const Tensor& kv,
                          const Tensor& k_rope, const Tensor& k, const Tensor& v) = 0;
  virtual void SplitMlaKvBackward(Queue& queue, const MlaShape& shape, const Tensor& dk,
                                  const Tensor& dv, const Tensor& dkv, const Tensor& dk_rope) = 0;
  // Columns of a matrix: `from` [T, A + B] to a [T, A] and b [T, B], and back.
  virtual void SplitColumns(Queue& queue, const Tensor& from, const Tensor& a, const Tensor& b) = 0;
  virtual void MergeColumns(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& to) = 0;
  // Rotates x [T, heads, D] in place. cosine, sine: [seq, dim/2], of the statistics' dtype.
  virtual void Rope(Queue& queue, const RopeForm& form, const Tensor& cosine, const Tensor& sine,
                    const Tensor& x) = 0;
  // o [T, N, v_dim] = softmax(scale · q·kᵀ, causal) · v; lse [B, N, S]. An example gets the same
  // numbers as in a sequence of its own. Padding sees no key and no query sees padding: its o, lse
  // and gradients are 0.
  virtual void Attention(Queue& queue, const AttentionShape& shape, const Tensor& q,
                         const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse) = 0;
  virtual void AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                                 const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                 const Tensor& lse, const Tensor& dq, const Tensor& dk,
                                 const Tensor& dv) = 0;

  // --- ends --------------------------------------------------------------------------------------
  // y [T, H] = the rows of table [V, H] for tokens int32 [T].
  virtual void Embedding(Queue& queue, const Tensor& tokens, const Tensor& table,
                         const Tensor& y) = 0;
  // Rows of dtable for tokens that do not occur are 0.
  virtual void EmbeddingBackward(Queue& queue, const Tensor& tokens, const Tensor& dy,
                                 const Gradient& dtable) = 0;
  // lse [T] = log Σ exp of all columns of logits [T, V], those that pad the vocabulary included, as
  // in Megatron. losses [T] = lse - logit of the label; 0 where labels int32 [T] is negative.
  virtual void CrossEntropy(Queue& queue, const Tensor& logits, const Tensor& labels,
                            const Tensor& losses, const Tensor& lse) = 0;
  // dlogits = token_weights[t] · (softmax - onehot); 0 for ignored tokens. dlogits may be logits.
  virtual void CrossEntropyBackward(Queue& queue, const Tensor& logits, const Tensor& labels,
                                    const Tensor& lse, const Tensor& token_weights,
                                    const Tensor& dlogits) = 0;

  // --- mixture of experts ------------------------------------------------------------------------
  // logits [T, E] (statistics' dtype) → scores [T, E], experts int32 [T, K] (best first; of equal
  // scores the lowest index), weights [T, K]. expert_bias [E] affects only the selection; null:
  // none. Tokens with a negative position (int32 [T]; null: no such tokens) are padding: their
  // experts are all -1, their scores and weights 0. The operations below ignore such choices.
  // If the form is assigned, `experts` is read in place of being chosen, and `expert_bias` and
  // `positions` are null.
  virtual void Router(Queue& queue, const RouterForm& form, const Tensor& logits,
                      const Tensor& expert_bias, const Tensor& positions, const Tensor& scores,
                      const Tensor& experts, const Tensor& weights) = 0;
  // dlogits is overwritten.
  virtual void RouterBackward(Queue& queue, const RouterForm& form, const Tensor& scores,
                              const Tensor& experts, const Tensor& dweights,
                              const Tensor& dlogits) = 0;
  // The backward of logits [T, E] = x [T, H] · weight [E, H]ᵀ. dlogits has the statistics' dtype,
  // in which both products are computed from the operands as they are. dx [T, H] += dlogits ·
  // weight, rounded after the addition; dweight = dlogitsᵀ · x.
  virtual void RouterLogitsBackward(Queue& queue, const Tensor& dlogits, const Tensor& x,
                                    const Tensor& weight, const Tensor& dx,
                                    const Gradient& dweight) = 0;
  // Adds the auxiliary losses to loss [1], and their gradient times `gradient_scale` to dlogits;
  // null: not wanted.
  virtual void RouterAuxLoss(Queue& queue, const RouterForm& form, const AuxLossForm& aux,
                             const Tensor& logits, const Tensor& scores, const Tensor& experts,
                             double gradient_scale, const Tensor& loss, const Tensor& dlogits) = 0;
  // Gives the choices of the form's experts rows sorted by expert; within an expert in order of
  // token, then slot. Other choices have no row. `weights` [T, K] decide which are dropped; they
  // are read only with a capacity. dropped [1] += choices of these experts without a row because of
  // the capacity. If more rows are needed than there is room for, no choice has a row and overflows
  // [1] += 1. Both are int64; null: not counted.
  virtual void SortByExpert(Queue& queue, const SortForm& form, const Tensor& experts,
                            const Tensor& weights, const ExpertRows& sorted, const Tensor& dropped,
                            const Tensor& overflows) = 0;
  // From tokens to rows: y [R, H] gets x [T, H] of the token of each row, and row_weights [R] the
  // weight [T, K] of each row's choice. Rows in use that belong to no choice become 0. `weights`
  // and `row_weights` may both be null. x and y may be int32.
  virtual void Permute(Queue& queue, const ExpertRows& sorted, const Tensor& x,
                       const Tensor& weights, const Tensor& y, const Tensor& row_weights) = 0;
  // Back: y[t] = Σ_k x[rows[t, k]] in order of k, summed in the compute type and rounded once;
  // weights[t, k] = row_weights[rows[t, k]], 0 without a row. It is the backward of Permute, and
  // Permute is its backward.
  virtual void Unpermute(Queue& queue, const ExpertRows& sorted, const Tensor& x,
                         const Tensor& row_weights, const Tensor& y, const Tensor& weights) = 0;
  // ranks int32 [T, P]: ranks[t, p] = p if one of token t's experts [T, K] is of those that rank p
  // of P holds, [p·num_held, (p+1)·num_held), else -1. So a token chooses ranks like experts.
  virtual void ChosenRanks(Queue& queue, const Tensor& experts, std::int64_t num_held,
                           const Tensor& ranks) = 0;
  // Plans the exchange of rows that every rank has sorted by expert. offsets int32 [P, E + 1] are
  // those of all ranks, this one is `rank`. Rows are sent in their order, so they are received by
  // source, then by expert; `plan.arrival` sorts them by expert, then by source. If plan.offsets
  // has an entry for every source (segments = P), sources are segments. If the experts of any rank
  // get more than R rows, no rank sends any and overflows [1] (int64) += 1, on all ranks alike.
  virtual void PlanExchange(Queue& queue, std::int64_t rank, const Tensor& offsets,
                            const ExchangePlan& plan, const Tensor& overflows) = 0;
  // y[i] = x[index[i]], and y[index[i]] = x[i], for i < count (int32 [1], on the device). index
  // int32 [R] is a permutation of [0, count); x, y [R, …].
  virtual void GatherRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                          const Tensor& y) = 0;
  virtual void ScatterRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                           const Tensor& y) = 0;
  // counts int64 [E] += the rows of each expert. `offsets` int32 [E·segments + 1] bounds the ranges
  // of rows, as in grouped products.
  virtual void CountRows(Queue& queue, const Tensor& offsets, std::int64_t segments,
                         const Tensor& counts) = 0;
  // bias [E] += rate · sign(mean(counts) - counts); counts int64 [E]. `update`: UpdateScalars, of
  // which it reads `skip`.
  virtual void UpdateExpertBias(Queue& queue, const Tensor& counts, double rate,
                                const Tensor& update, const Tensor& bias) = 0;

  // --- sums and decisions of a step --------------------------------------------------------------
  // `sums`, `update` and `outcome` are StepSums, UpdateScalars and StepOutcome on the device.

  // Adds a micro-batch to `sums`: the sum or, without per_token_loss, the mean of losses [T], of
  // which `counted` have a label; and aux_loss [1]. Both have the statistics' dtype. mean [1]
  // (float64) = the mean of the losses, or NaN if the micro-batch has a loss that is not finite.
  virtual void AddLosses(Queue& queue, const StepRule& rule, std::int64_t counted,
                         const Tensor& losses, const Tensor& aux_loss, const Tensor& sums,
                         const Tensor& mean) = 0;
  // The gradient's scale = 1 / tokens of all ranks; 1 if there are none.
  virtual void AverageOverTokens(Queue& queue, const Tensor& sums, const Tensor& update) = 0;
  // sums = Σ x² of every row of each of `all`. Each row is summed in one fixed order, independent
  // of other rows. A row with an element that is not finite has a sum that is not finite.
  virtual void SumSquares(Queue& queue, std::span<const RowSquares> all) = 0;
  // Adds scale² · row_sums [rows], with the scale in `update`, to `sums`. Notes in `outcome` the
  // first row that is not finite.
  virtual void AddSquares(Queue& queue, const Tensor& row_sums, const Tensor& update,
                          const Tensor& sums, const Tensor& outcome) = 0;
  // Computes what a step reports from sums over all ranks, and what its update does: the factor
  // that clips the gradient to the rule's norm, and whether to skip. A failed step is skipped. If
  // has_failed int64 [1] is not null, a failure sets it, and as long as it is set every step fails.
  virtual void DecideStep(Queue& queue, const StepRule& rule, const Tensor& sums,
                          const Tensor& has_failed, const Tensor& update,
                          const Tensor& outcome) = 0;

  // Adds the time since the last call with these `times` (PhaseTimes on the device) to the phase of
  // that call, and begins `phase`. The time is that at which the queue gets to the call.
  virtual void EnterPhase(Queue& queue, StepPhase phase, const Tensor& times) = 0;

  // --- optimizer ---------------------------------------------------------------------------------
  // Flat arrays of one length: main weights and moments are float32, gradients have any dtype of
  // gradients, and two terms are added in float32. `copies` receive the new weights. `update`:
  // UpdateScalars.
  virtual void AdamW(Queue& queue, const AdamWForm& form, const Tensor& update,
                     const GradientSum& gradient, const Tensor& main, const Tensor& exp_avg,
                     const Tensor& exp_avg_sq, const WeightCopies& copies) = 0;
  virtual void Sgd(Queue& queue, const SgdForm& form, const Tensor& update,
                   const GradientSum& gradient, const Tensor& main, const Tensor& momentum,
                   const WeightCopies& copies) = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_OPS_H_
