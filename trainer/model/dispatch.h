// Dispatch: sends tokens to the experts that they chose, and the results back.
#ifndef CKPT_TRAINER_MODEL_DISPATCH_H_
#define CKPT_TRAINER_MODEL_DISPATCH_H_

#include <cstdint>
#include <memory>

#include "core/base/status.h"
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
};

struct DispatchSpec {
  std::int64_t num_experts = 1;  // on all ranks; rank e of P holds [e·E/P, (e+1)·E/P)
  DropForm drop;
  // The rows of each expert are kept apart by the rank that they come from (kAllToAll only).
  bool separates_sources = false;
};

// One routing of T tokens to K experts each. This rank's experts have R rows, ordered by expert,
// then by source rank, then by token. Two linear maps, each the transpose of the other, carry rows
// to the experts and back. So forward and backward use the same calls.
//
// Thread-safety: the rank's thread; every rank of the group makes the same calls.
class Dispatch {
 public:
  virtual ~Dispatch() = default;

  // Takes the choice `experts` int32 [T, K], which is -1 for padding, and its `weights` [T, K],
  // which decide what is dropped. Padding is not sent. With kAllToAll, ranks may differ in T, and T
  // may be 0; with kAllGather, T is equal on all ranks. What Route allocates in the arena must stay
  // as long as the routing is used. Blocks until the choice is known.
  // Errors: those of the queue and of the group (kInternal: ranks differ in T, kAllGather).
  virtual Status Route(BlockContext& context, const Tensor& experts, const Tensor& weights) = 0;

  [[nodiscard]] std::int64_t num_rows() const { return num_rows_; }  // R
  // With a capacity: the choices of this rank's tokens that have no row, those of padding included.
  // Without: 0.
  [[nodiscard]] std::int64_t num_unplaced() const { return num_unplaced_; }
  // int32 [held experts · segments() + 1], in the form that grouped products take.
  [[nodiscard]] const Tensor& offsets() const { return offsets_; }
  [[nodiscard]] std::int64_t segments() const { return segments_; }

  // x [T, H] → rows [R, H]: one copy of a token for every expert held here that it chose.
  virtual void ToExperts(BlockContext& context, const Tensor& x, const Tensor& rows) = 0;
  // rows [R, H] → y [T, H]: the sum of a token's rows.
  virtual void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& y) = 0;
  // The same for one number per choice: weights [T, K] to row_weights [R], and back.
  virtual void WeightsToExperts(BlockContext& context, const Tensor& weights,
                                const Tensor& row_weights) = 0;
  virtual void WeightsFromExperts(BlockContext& context, const Tensor& row_weights,
                                  const Tensor& weights) = 0;

 protected:
  std::int64_t num_rows_ = 0;
  std::int64_t num_unplaced_ = 0;
  std::int64_t segments_ = 1;
  Tensor offsets_;
};

// REQUIRES: the number of ranks of `group` divides the number of experts. `group` outlives the
// Dispatch.
std::unique_ptr<Dispatch> MakeDispatch(Dispatcher kind, const DispatchSpec& spec,
                                       Collectives& group);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_DISPATCH_H_
