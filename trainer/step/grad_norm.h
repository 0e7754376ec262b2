// The norm of all gradients. Equal gradients give the same bits on every mesh.
#ifndef CKPT_TRAINER_STEP_GRAD_NORM_H_
#define CKPT_TRAINER_STEP_GRAD_NORM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/params/param_store.h"

namespace ckpt::trainer {

// Rows of gradients that this rank counts.
[[nodiscard]] std::int64_t CountNormRows(std::span<const UnitSpec> units, const ShardPlan& plan);
// Device memory of a GradNorm.
[[nodiscard]] constexpr std::uint64_t NormBytes(std::int64_t rows) {
  return static_cast<std::uint64_t>(rows) * sizeof(double);
}

// Squares are summed within each row in one fixed order, and over the rows exactly. Shards hold
// whole rows. So the result does not depend on the mesh, nor on which rank counts a row. Exactly
// one rank counts each element.
//
// Thread-safety: the rank's thread.
class GradNorm {
 public:
  // `world`: all ranks that train. All arguments outlive it. Errors: kSystem.
  static Result<GradNorm> Create(const ParamStore& store, HostGroup& world, Ops& ops,
                                 Device& device);

  // √Σ g² over every element g of the gradients, where g is the store's sum times `scale`. Blocks
  // until `queue` has run what was enqueued. Every rank calls it.
  //
  // Errors: kValueMismatch on every rank if a gradient is not finite (a rank that holds it names
  // the parameter), those of the queue.
  Result<double> Compute(Queue& queue, double scale);

 private:
  GradNorm(const ParamStore& store, HostGroup& world, Ops& ops, Device& device)
      : store_(&store), world_(&world), ops_(&ops), device_(&device) {}
  [[nodiscard]] Status NotFinite(const std::vector<double>& row_sums) const;

  const ParamStore* store_;
  HostGroup* world_;
  Ops* ops_;
  Device* device_;
  Buffer memory_;
  Tensor row_sums_;  // float64, one per row that this rank counts
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_GRAD_NORM_H_
