// Dispatch: sends tokens to the experts that they chose, and the results back.
#ifndef CKPT_TRAINER_MODEL_DISPATCH_H_
#define CKPT_TRAINER_MODEL_DISPATCH_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/device/collectives.h"
#include "trainer/model/block.h"
#include "trainer/ops/moe_specs.h"

namespace ckpt::trainer {

enum class Dispatcher : std::uint8_t {
  // Every rank gets every token of the group and computes the part of its own experts. The partial
  // results are summed.
  kAllGather,
  // A token is sent to the ranks of its experts, and their results are sent back.
  kAllToAll,
  // A token is sent once to each rank that holds some of its experts, and comes back as the sum of
  // what they made of it. With a capacity of experts, or where sources are kept apart, it is
  // kAllToAll. How many rows ranks read, they find on the device, so the host never waits. The
  // trainer refuses it where a host must know.
  kFlex,
};

// The rows that an expert takes of one rank's tokens, as multiple of the mean load.
struct ExpertCapacity {
  std::optional<double> factor = {};  // none: no limit, nothing is dropped
  DropPolicy policy = DropPolicy::kProbability;
  bool pad = false;

  // For this many choices, of this many tokens; 0: no limit.
  [[nodiscard]] std::int64_t Rows(std::int64_t tokens, std::int64_t topk,
                                  std::int64_t num_experts) const;
};

struct DispatchSpec {
  std::int64_t num_experts = 1;  // on all ranks; rank e of P holds [e·E/P, (e+1)·E/P)
  std::int64_t topk = 1;
  ExpertCapacity capacity = {};  // not with kAllGather
  // Limits the rows that the experts of a rank may get from all ranks together, as a multiple of
  // the mean. None: memory for the most rows that can come. Only for several ranks.
  std::optional<double> rank_capacity_factor = {};
  // The rows of each expert are kept apart by the rank that they come from (not with kAllGather).
  bool separates_sources = false;
};

// What a routing counts in device memory: int64 [1] each, which it adds to.
struct DispatchCounts {
  Tensor dropped;    // choices of this rank's tokens without a row, because of the capacity
  Tensor overflows;  // routings whose rows exceeded rank_capacity_factor; may be null on one rank
};

// One routing of T tokens to K experts each. This rank's experts have rows, ordered by expert, then
// by source rank, then by token. Two linear maps, each the transpose of the other, carry rows to
// the experts and back. So forward and backward use the same calls.
//
// All calls only enqueue. What the host must know, it knows from the number of tokens: memory for
// rows has a fixed number of rows R, and how many of them are in use is known on the device alone
// (`count`). If there are more than R, all results are undefined, `overflows` counts it, and the
// step must fail.
//
// Thread-safety: the rank's thread; every rank of the group makes the same calls, with the same T.
class Dispatch {
 public:
  virtual ~Dispatch() = default;

  // Allocates in the arena what a routing of `tokens` tokens keeps. It must stay as long as the
  // routing is used. The capacity is that of `routed_tokens`, those that are not padding.
  virtual void Plan(BlockContext& context, std::int64_t tokens, std::int64_t routed_tokens) = 0;
  // R. REQUIRES, as all below: a plan.
  [[nodiscard]] std::int64_t max_rows() const { return max_rows_; }

  // Takes the choice `experts` int32 [T, K], which is -1 for padding, and its `weights` [T, K],
  // which decide what is dropped. Padding is not sent.
  virtual void Route(BlockContext& context, const Tensor& experts, const Tensor& weights,
                     const DispatchCounts& counts) = 0;

  // int32 [held experts · segments() + 1], in the form that grouped products take.
  [[nodiscard]] const Tensor& offsets() const { return offsets_; }
  [[nodiscard]] std::int64_t segments() const { return segments_; }
  // int32 [1]: the rows in use.
  [[nodiscard]] Tensor count() const { return offsets_.Rows(offsets_.dim(0) - 1, 1); }

  // x [T, H] → rows [R, H]: one copy of a token for every expert held here that it chose. With it
  // go the weights [T, K] → row_weights [R], or both are null.
  virtual void ToExperts(BlockContext& context, const Tensor& x, const Tensor& weights,
                         const Tensor& rows, const Tensor& row_weights) = 0;
  // rows [R, H] → y [T, H]: the sum of a token's rows. With it go row_weights → weights, or both
  // are null.
  virtual void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& row_weights,
                           const Tensor& y, const Tensor& weights) = 0;

 protected:
  std::int64_t max_rows_ = 0;
  std::int64_t segments_ = 1;
  Tensor offsets_;
};

// The rows that a rank sends to the ranks that divide the experts, itself included, for one of its
// tokens; expected, if every set of `topk` experts is as likely as another.
[[nodiscard]] double RowsPerToken(Dispatcher kind, std::int64_t num_experts, std::int64_t topk,
                                  std::int64_t ranks);

// `group`: the ranks that divide the experts; null: this rank holds all. Outlives the Dispatch.
// REQUIRES: the number of ranks divides the number of experts.
std::unique_ptr<Dispatch> MakeDispatch(Dispatcher kind, const DispatchSpec& spec,
                                       Collectives* group);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_DISPATCH_H_
