// The norm of all gradients, the same bits on every mesh that has the same gradients.
#ifndef CKPT_TRAINER_STEP_GRAD_NORM_H_
#define CKPT_TRAINER_STEP_GRAD_NORM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/params/param_store.h"

namespace ckpt::trainer {

// Rows of this rank's parts of the gradients that it counts.
[[nodiscard]] std::int64_t CountNormRows(std::span<const UnitSpec> units, const ShardPlan& plan);
// Device memory that a GradNorm holds.
[[nodiscard]] constexpr std::uint64_t NormBytes(std::int64_t rows) {
  return static_cast<std::uint64_t>(rows) * sizeof(double);
}

// Squares are summed row by row, each row in one order, and the rows exactly: shards hold whole
// rows, so neither the mesh nor who counts a row shows in the result. Every element is counted by
// exactly one rank.
//
// Thread-safety: the rank's thread.
class GradNorm {
 public:
  // `world`: all ranks that train. All outlive it. Errors: kSystem.
  static Result<GradNorm> Create(const ParamStore& store, Communicator& world, Ops& ops,
                                 Device& device);

  // √Σ g² over every element g of every sum of gradients times `scale`. Blocks until `queue` got
  // there. Every rank calls it.
  //
  // Errors: kValueMismatch on every rank if a gradient is not finite (names the parameter where
  //         this rank holds it), those of the queue.
  Result<double> Compute(Queue& queue, double scale);

 private:
  GradNorm(const ParamStore& store, Communicator& world, Ops& ops, Device& device)
      : store_(&store), world_(&world), ops_(&ops), device_(&device) {}
  [[nodiscard]] Status NotFinite(const std::vector<double>& row_sums) const;

  const ParamStore* store_;
  Communicator* world_;
  Ops* ops_;
  Device* device_;
  Buffer memory_;
  Tensor row_sums_;  // float64, of the rows that this rank counts
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_GRAD_NORM_H_
