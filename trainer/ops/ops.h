// Ops: every computation that the model, the optimizer and the engine ask of a device, as one
// table.
#ifndef CKPT_TRAINER_OPS_OPS_H_
#define CKPT_TRAINER_OPS_OPS_H_

#include <cstdint>
#include <optional>

#include "trainer/device/queue.h"
#include "trainer/device/tensor.h"
#include "trainer/ops/gradient.h"
#include "trainer/ops/moe_specs.h"

namespace ckpt::trainer {

// Shapes are in brackets: T tokens (= B batch × S sequence), H hidden size, N query heads, G
// key/value heads, D head dim, F feed-forward size, E experts, K experts per token, R rows sorted
// by expert, V vocabulary.
//
// Every call enqueues and returns; operands are contiguous, do not overlap unless a comment says
// so, and stay valid until the queue got there. Activations and weights have the compute dtype
// (float32, float64 for tests, bfloat16: computed in float32 and rounded on store). Statistics
// (`rstd`, `lse`, losses, router scores) are float32, or float64 beside float64.
//
// Gradients of parameters are stored or added, as their `Gradient` says (`d… = …` below means
// either). Their dtype is float32, float64, bfloat16, or int64 for fixed-point gradients
// (trainer/ops/fixed_point.h), whose sums are exact and so the same in every order.
//
// Wrong shapes or dtypes are bugs of the caller and abort (CKPT_CHECK).

struct GemmForm {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // d += …
};

// Where examples lie that share sequences, on the device. Without tensors every sequence is one
// example. An example and the padding behind it lie in one sequence.
struct ExampleBounds {
  // int32 [n + 1], ascending from 0 to T: example e begins at token cu_seqlens[e]. Examples without
  // a token may stand anywhere, so that n need not vary.
  Tensor cu_seqlens = {};
  // int32 [n]: the tokens of each; those from there to the next example are padding.
  Tensor lengths = {};
};

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t num_heads = 0;     // N
  std::int64_t num_kv_heads = 0;  // G; query head n attends to key/value head n / (N / G)
  std::int64_t qk_dim = 0;        // D of queries and keys
  std::int64_t v_dim = 0;         // D of values and of the result
  double scale = 1;
  std::int64_t window = 0;      // keys k with q - window < k <= q; 0: every k <= q
  ExampleBounds examples = {};  // no query sees a key of another example
};

// Rotation of the last `dim` elements of every head, or the first if `at_front`.
struct RopeForm {
  std::int64_t seq = 0;   // positions of the tables; that of token t is t mod seq
  Tensor positions = {};  // or int32 [T]: below seq; negative: padding, which is not rotated
  std::int64_t dim = 0;   // rotated elements of a head
  bool at_front = true;   // the first `dim` elements, else the last
  bool interleaved =
      false;  // pairs (2i, 2i+1), else (i, i + dim/2); the result is stored where its operands were
  bool inverse = false;  // rotate back: the backward of the rotation
};

// Where the parts of a fused projection lie: per key/value head its N/G query heads, its key, its
// value (Megatron's linear_qkv), each D elements.
struct QkvShape {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
};

// Multi-head latent attention: q [T, N, dn+dr], kv [T, N, dn+dv] from the latent, k_rope [T, dr]
// shared by the heads.
struct MlaShape {
  std::int64_t num_heads = 0;
  std::int64_t nope_dim = 0;  // dn
  std::int64_t rope_dim = 0;  // dr
  std::int64_t v_dim = 0;     // dv
};

// What a sum of gradients is multiplied by wherever it is used, so that no pass over all of them
// does it: first by `scale`, then by `clip`, each time rounded to float32.
struct GradientFactors {
  double scale = 1;  // makes an average of the sum
  double clip = 1;   // bounds the norm
};

struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;  // decay as p -= lr·wd·p (AdamW); else g += wd·p (Adam with L2)
  std::int64_t step = 1;  // counted from 1, for bias correction
  GradientFactors factors = {};
};

struct SgdStep {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  GradientFactors factors = {};
};

class Ops {
 public:
  virtual ~Ops() = default;

  // --- matrix products ---------------------------------------------------------------------------
  // d [m, n] = op(a) [m, k] · op(b) [k, n]. d has the dtype of a and b, or any of a gradient.
  virtual void Gemm(Queue& queue, const GemmForm& form, const Tensor& a, const Tensor& b,
                    const Tensor& d) = 0;
  // Products of row ranges with a matrix of their own, one of w [E, O, I]: rows [offsets[s],
  // offsets[s+1]) belong to w[s / segments], with `segments` row ranges per matrix (more than one
  // only for sums that do not depend on the mesh). offsets: int32 [E·segments + 1], on the device,
  // ascending. Rows before the first and behind the last range are not touched.
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
  // Same number of elements; casts between float32, float64, bfloat16; from int64 fixed point to a
  // float dtype and back.
  virtual void Cast(Queue& queue, const Tensor& from, const Tensor& to) = 0;
  // to += from, cast as above; `to` may be a gradient.
  virtual void Accumulate(Queue& queue, const Tensor& from, const Tensor& to) = 0;
  // out = a + b; `out` may be `a` or `b`.
  virtual void Add(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& out) = 0;
  virtual void Scale(Queue& queue, const Tensor& x, double factor) = 0;
  virtual void AddBias(Queue& queue, const Tensor& x,
                       const Tensor& bias) = 0;  // x [T, O] += bias [O]
  virtual void BiasBackward(Queue& queue, const Tensor& dy, const Gradient& dbias) = 0;

  // y = w · x·rstd with rstd = (mean(x²) + eps)^-½ over the last dim; x [rows, D], w [D], rstd
  // [rows].
  virtual void RmsNorm(Queue& queue, const Tensor& x, const Tensor& weight, double eps,
                       const Tensor& y, const Tensor& rstd) = 0;
  // dx = …, or dx += … with `accumulate`; dx may be dy.
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

  // Feed-forward activations. x [rows, 2F] holds gate then up: y [rows, F] = silu(gate)·up·p, with
  // p [rows] (float statistics) the routing weight of a row, or null for 1.
  virtual void SwiGlu(Queue& queue, const Tensor& x, const Tensor& row_weights,
                      const Tensor& y) = 0;
  // dx may be x. drow_weights [rows] is overwritten; null where row_weights is.
  virtual void SwiGluBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                              const Tensor& row_weights, const Tensor& dx,
                              const Tensor& drow_weights) = 0;
  // Megatron's default activation, erf form: y = gelu(x).
  virtual void Gelu(Queue& queue, const Tensor& x, const Tensor& row_weights, const Tensor& y) = 0;
  virtual void GeluBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                            const Tensor& row_weights, const Tensor& dx,
                            const Tensor& drow_weights) = 0;

  // --- attention ---------------------------------------------------------------------------------
  // qkv [T, (N + 2G)·D] ⇄ q [T, N, D], k [T, G, D], v [T, G, D].
  virtual void SplitQkv(Queue& queue, const QkvShape& shape, const Tensor& qkv, const Tensor& q,
                        const Tensor& k, const Tensor& v) = 0;
  virtual void MergeQkv(Queue& queue, const QkvShape& shape, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& qkv) = 0;
  // kv [T, N, dn+dv], k_rope [T, dr] → k [T, N, dn+dr] (its last dr shared by all heads), v [T, N,
  // dv]; and the backward, which sums dk_rope over the heads.
  virtual void SplitMlaKv(Queue& queue, const MlaShape& shape, const Tensor& kv,
                          const Tensor& k_rope, const Tensor& k, const Tensor& v) = 0;
  virtual void SplitMlaKvBackward(Queue& queue, const MlaShape& shape, const Tensor& dk,
                                  const Tensor& dv, const Tensor& dkv, const Tensor& dk_rope) = 0;
  // Columns of a matrix: from [T, A + B] → a [T, A], b [T, B], and back.
  virtual void SplitColumns(Queue& queue, const Tensor& from, const Tensor& a, const Tensor& b) = 0;
  virtual void MergeColumns(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& to) = 0;
  // In place on x [T, heads, D]. cosine, sine: [seq, dim/2], of the statistics' dtype.
  virtual void Rope(Queue& queue, const RopeForm& form, const Tensor& cosine, const Tensor& sine,
                    const Tensor& x) = 0;
  // o [T, N, v_dim] = softmax(scale · q·kᵀ, causal) · v; lse [B, N, S]. An example's numbers are
  // those that it has in a sequence of its own. Padding sees nothing and is seen by nothing: its o,
  // lse and gradients are 0.
  virtual void Attention(Queue& queue, const AttentionShape& shape, const Tensor& q,
                         const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse) = 0;
  virtual void AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                                 const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                 const Tensor& lse, const Tensor& dq, const Tensor& dk,
                                 const Tensor& dv) = 0;

  // --- ends --------------------------------------------------------------------------------------
  // y [T, H] = table [V, H] rows at tokens int32 [T].
  virtual void Embedding(Queue& queue, const Tensor& tokens, const Tensor& table,
                         const Tensor& y) = 0;
  // Rows of tokens that do not occur are 0.
  virtual void EmbeddingBackward(Queue& queue, const Tensor& tokens, const Tensor& dy,
                                 const Gradient& dtable) = 0;
  // losses [T] = lse - logit of the label, 0 where labels int32 [T] is negative. Columns behind
  // `vocab` of logits [T, V] are padding and take no part.
  virtual void CrossEntropy(Queue& queue, const Tensor& logits, const Tensor& labels,
                            std::int64_t vocab, const Tensor& losses, const Tensor& lse) = 0;
  // dlogits = token_weights[t] · (softmax - onehot), 0 for ignored tokens and padding. dlogits may
  // be logits.
  virtual void CrossEntropyBackward(Queue& queue, const Tensor& logits, const Tensor& labels,
                                    std::int64_t vocab, const Tensor& lse,
                                    const Tensor& token_weights, const Tensor& dlogits) = 0;

  // --- mixture of experts ------------------------------------------------------------------------
  // logits [T, E] (statistics' dtype) → scores [T, E], experts int32 [T, K] (best first; ties:
  // lowest index), weights [T, K]. expert_bias [E] is added for the selection only; null: none.
  // Tokens whose position (int32 [T]; null: none) is negative are padding: they choose expert -1
  // everywhere, with scores and weights of 0. What follows leaves such choices out.
  virtual void Router(Queue& queue, const RouterForm& form, const Tensor& logits,
                      const Tensor& expert_bias, const Tensor& positions, const Tensor& scores,
                      const Tensor& experts, const Tensor& weights) = 0;
  // dlogits is overwritten.
  virtual void RouterBackward(Queue& queue, const RouterForm& form, const Tensor& scores,
                              const Tensor& experts, const Tensor& dweights,
                              const Tensor& dlogits) = 0;
  // Adds the gradient of the auxiliary losses, times `gradient_scale`, to dlogits (null: only the
  // value) and their value to loss [1].
  virtual void RouterAuxLoss(Queue& queue, const RouterForm& form, const AuxLossForm& aux,
                             const Tensor& logits, const Tensor& scores, const Tensor& experts,
                             double gradient_scale, const Tensor& loss, const Tensor& dlogits) = 0;
  // Gives every (token, slot) its row among rows sorted by expert, in order of token then slot
  // within an expert. rows int32 [T, K]: the row, -1 if dropped or not routed; offsets int32
  // [E + 1]. `weights` decide who is dropped.
  virtual void SortByExpert(Queue& queue, const DropForm& form, const Tensor& experts,
                            const Tensor& weights, const Tensor& rows, const Tensor& offsets) = 0;
  // y[rows[t, k]] = x[t]; rows of y that nobody names become 0. x [T, H], y [R, H].
  virtual void Permute(Queue& queue, const Tensor& x, const Tensor& rows, const Tensor& y) = 0;
  // y[t] = Σ_k x[rows[t, k]] in order of k. The backward of Permute, and Permute of this.
  virtual void Unpermute(Queue& queue, const Tensor& x, const Tensor& rows, const Tensor& y) = 0;
  // Scalars per slot: y[rows[t, k]] = x[t, k] (0 elsewhere), and back (0 where dropped). x [T, K],
  // y [R].
  virtual void PermuteWeights(Queue& queue, const Tensor& x, const Tensor& rows,
                              const Tensor& y) = 0;
  virtual void UnpermuteWeights(Queue& queue, const Tensor& x, const Tensor& rows,
                                const Tensor& y) = 0;
  // y[i] = x[index[i]], and y[index[i]] = x[i]. index int32 [R], a permutation; x, y [R, …].
  virtual void GatherRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& y) = 0;
  virtual void ScatterRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& y) = 0;
  // counts int64 [E] += the rows of each expert, where `offsets` int32 [E·segments + 1] bounds the
  // row ranges of them all, as in grouped products.
  virtual void CountRows(Queue& queue, const Tensor& offsets, std::int64_t segments,
                         const Tensor& counts) = 0;
  // bias [E] += rate · sign(mean(counts) - counts); counts int64 [E].
  virtual void UpdateExpertBias(Queue& queue, const Tensor& counts, double rate,
                                const Tensor& bias) = 0;

  // --- optimizer and gradient statistics ---------------------------------------------------------
  // Flat arrays of one length: main weights and moments float32, gradients of any dtype that a
  // gradient has; `compute` (null: none) receives the new weights, cast.
  virtual void AdamW(Queue& queue, const AdamWStep& step, const Tensor& gradient,
                     const Tensor& main, const Tensor& exp_avg, const Tensor& exp_avg_sq,
                     const Tensor& compute) = 0;
  virtual void Sgd(Queue& queue, const SgdStep& step, const Tensor& gradient, const Tensor& main,
                   const Tensor& momentum, const Tensor& compute) = 0;
  // sums [rows] (float64) = Σ (scale·x)² of every row of x [rows, D], of any dtype that a gradient
  // has; scale·x is rounded to its compute type. Each row is summed in one fixed order, whatever the
  // rows beside it, and not finite where the row is not.
  virtual void SumSquares(Queue& queue, const Tensor& x, double scale, const Tensor& sums) = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_OPS_H_
