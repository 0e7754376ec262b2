// Dispatch: how tokens reach the experts that they chose, and come back.
#ifndef CKPT_TRAINER_MODEL_DISPATCH_H_
#define CKPT_TRAINER_MODEL_DISPATCH_H_

#include <cstdint>
#include <memory>

#include "core/base/status.h"
#include "trainer/comm/communicator.h"
#include "trainer/model/block.h"
#include "trainer/ops/moe_specs.h"

namespace ckpt::trainer {

enum class Dispatcher : std::uint8_t {
  kAllGather,  // every rank sees every token of the group and computes its own experts' part; partial results are summed
  kAllToAll,   // a token travels to the ranks of its experts and back
};

struct DispatchSpec {
  std::int64_t num_experts = 1;  // of all ranks; rank e of P holds [e·E/P, (e+1)·E/P)
  DropForm drop;
  // Rows of one expert are divided by the rank they come from (kAllToAll only).
  bool separates_sources = false;
};

// One routing of T tokens to K experts each. The rows of this rank's experts are R, by expert, then
// by source rank, then by token; they are carried to and fro by two linear maps that are each
// other's transpose, so that forward and backward use the same calls.
//
// Thread-safety: the rank's thread; every rank of the group makes the same calls.
class Dispatch {
 public:
  virtual ~Dispatch() = default;

  // Starts from the choice `experts` int32 [T, K], -1 of padding, which goes nowhere, with its
  // `weights` [T, K], which decide who is dropped. With kAllToAll ranks may differ in T, or have none; with kAllGather all have as many.
  // What it allocates in the arena is needed as long as the routing is. Blocks until the choice is
  // known.
  // Errors: those of the queue and of the group (kInternal: ranks that differ in T, kAllGather).
  virtual Status Route(BlockContext& context, const Tensor& experts, const Tensor& weights) = 0;

  [[nodiscard]] std::int64_t num_rows() const { return num_rows_; }  // R
  // With a capacity: choices of this rank's tokens that have no row, those of padding among them. Without: 0.
  [[nodiscard]] std::int64_t num_unplaced() const { return num_unplaced_; }
  // int32 [held experts · segments() + 1], as grouped products take it.
  [[nodiscard]] const Tensor& offsets() const { return offsets_; }
  [[nodiscard]] std::int64_t segments() const { return segments_; }

  // x [T, H] → rows [R, H]: a copy for every expert held here that a token chose.
  virtual void ToExperts(BlockContext& context, const Tensor& x, const Tensor& rows) = 0;
  // rows [R, H] → y [T, H]: the sum of a token's rows.
  virtual void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& y) = 0;
  // The same for one number per choice: weights [T, K] ⇄ row_weights [R].
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

// REQUIRES: the ranks of `group` divide the experts. `group` outlives it.
std::unique_ptr<Dispatch> MakeDispatch(Dispatcher kind, const DispatchSpec& spec,
                                       Communicator& group);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_DISPATCH_H_
