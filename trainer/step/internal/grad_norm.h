// The norm of all gradients. Equal gradients give the same bits on every mesh.
#ifndef CKPT_TRAINER_STEP_INTERNAL_GRAD_NORM_H_
#define CKPT_TRAINER_STEP_INTERNAL_GRAD_NORM_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
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
  // All arguments outlive it. Errors: kSystem.
  static Result<GradNorm> Create(ParamStore& store, Ops& ops, Device& device);

  // Enqueues the squares of the gradients that this rank counts, but those that reductions leave,
  // and those of `last_unit`, which the store may still reduce.
  void SquareEarly(Queue& queue, int last_unit);
  // Enqueues those of `last_unit`, and adds all to `sums`. A gradient is the store's sum times the
  // scale in `update`. `outcome` gets the first row that is not finite.
  void Add(Queue& queue, const Tensor& update, const Tensor& sums, const Tensor& outcome);

  // The parameter to which a row of this rank belongs. REQUIRES: 0 <= row < the number of rows.
  [[nodiscard]] const std::string& NameOf(std::int64_t row) const;

 private:
  GradNorm(const ParamStore& store, Ops& ops) : store_(&store), ops_(&ops) {}
  // Lists all rows whose squares are to be summed, where they are in this step: a sum that is kept
  // in its terms lies elsewhere in every step.
  void ListRows(int last_unit);

  const ParamStore* store_;
  Ops* ops_;
  std::vector<RowSquares> early_rows_;
  std::vector<RowSquares> last_rows_;  // of the unit that is reduced last
  Buffer memory_;
  Tensor row_sums_;  // float64, one per row that this rank counts
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_INTERNAL_GRAD_NORM_H_
