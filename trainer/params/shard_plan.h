// ShardPlan: what a rank holds, gathers and reduces of every parameter, as a pure function of the
// mesh.
#ifndef CKPT_TRAINER_PARAMS_SHARD_PLAN_H_
#define CKPT_TRAINER_PARAMS_SHARD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor/dtype.h"
#include "trainer/device/device.h"
#include "trainer/mesh/topology.h"
#include "trainer/params/flat_layout.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

struct Precision {
  DType compute = DType::kFloat32;      // weights as the model reads them
  DType main_params = DType::kFloat32;  // weights as the optimizer writes them
  DType main_grads = DType::kFloat32;   // sums over micro-batches; int64: fixed point
  DType grad_comm = DType::kFloat32;    // as sent to other ranks; int64 iff main_grads is
};

// A range of a group's flat array, in elements.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t elems = 0;

  [[nodiscard]] std::int64_t end() const { return begin + elems; }
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

// Parameters of one unit and class that share a flat array. The `inner` ranks divide it, and the
// `outer` replicas may divide each part again: slice (i, o) is part i·outer + o of inner·outer
// equal parts.
struct GroupPlan {
  int unit = 0;
  ParamClass param_class = ParamClass::kDense;
  bool trainable = true;
  std::vector<std::size_t> params;  // indices into the unit's list, in the layout's order
  FlatLayout layout;
  int inner = 1;
  int outer = 1;
  // What this rank holds. `main` always lies within `weights` and within `gradients`.
  FlatRange weights;    // compute weights
  FlatRange main;       // main weights and optimizer state
  FlatRange gradients;  // sums over micro-batches
  // Main weights are a view of the compute weights, because their dtypes are equal.
  bool main_is_weights = true;

  // Whether weights are gathered: whole weights exist only in a slot, between Acquire and Release.
  [[nodiscard]] bool gathers() const { return weights.elems < layout.total_elems; }
  // Whether a micro-batch's gradients are a whole array that is reduced at its end. Otherwise they
  // are added in place.
  [[nodiscard]] bool uses_bucket() const {
    return trainable && gradients.elems < layout.total_elems;
  }
  // Index into ShardPlan::landings: the sum of both ranks' gradients stays two terms (GradientSum).
  // The memory of a float32 sum holds this rank's gradients, whole, as the backward pass writes
  // them. So its own term is where it belongs, and only the other rank's is copied.
  std::optional<std::size_t> landing = {};
  // Whether that whole array lies in a slot.
  [[nodiscard]] bool uses_gradient_slot() const { return uses_bucket() && !landing.has_value(); }
  // The part of this rank as an inner rank.
  FlatRange part;
  // Whether an update may write this rank's part into the weights of the other rank, too, so that
  // nothing is gathered: two ranks hold all of them, and a link carries a part in the time of its
  // update. Of more ranks, each would send to all others.
  [[nodiscard]] bool UpdatesMayExchange() const {
    return trainable && inner == 2 && outer == 1 && part.elems < weights.elems && !main_is_weights;
  }
  // Whether the last that writes the sums of `main` in a step is a reduce-scatter, which may leave
  // their squares: over the replicas if these divide the sums, else over the inner ranks.
  [[nodiscard]] bool EndsWithReduceScatter() const {
    return trainable && !landing && main.elems < (outer > 1 ? part.elems : layout.total_elems);
  }
  // Exactly one rank counts each element of a gradient; this tells whether this rank counts its
  // `main`.
  bool counts_main = true;
};

// Where the other rank's terms land, of groups of one class and size: first in memory of its own,
// then, of each group, in the half that the group before it has sent away.
struct Landing {
  ParamClass param_class = ParamClass::kDense;
  std::int64_t elems = 0;  // of a term

  friend bool operator==(const Landing&, const Landing&) = default;
};

struct SlotOptions {
  int weight_slots = 2;  // units whose whole weights may exist at once, without the ends
  int gradient_slots = 2;
  int prefetch_depth = 1;  // units that are gathered ahead of the one in use
};

struct ShardPlanOptions {
  Precision precision = {};
  SlotOptions slots = {};
  std::int64_t num_micro_batches = 1;  // of every step
};

// The memory that a plan needs, by use. `explain` prints it; the store allocates exactly this.
struct PlannedBytes {
  std::uint64_t weights = 0;
  std::uint64_t main_weights = 0;
  std::uint64_t gradients = 0;
  std::uint64_t optimizer = 0;
  std::uint64_t slots = 0;

  [[nodiscard]] std::uint64_t total() const {
    return weights + main_weights + gradients + optimizer + slots;
  }
};

struct ShardPlan {
  Precision precision;
  SlotOptions slots;
  std::vector<GroupPlan> groups = {};                // by unit, dense before expert
  std::vector<std::vector<std::size_t>> units = {};  // the groups of each unit, as indices
  // A slot holds the gathered groups of any unit except the ends, which have their own places.
  std::uint64_t weight_slot_bytes = 0;
  std::uint64_t gradient_slot_bytes = 0;
  struct EndPlace {
    int unit = 0;
    std::uint64_t weight_bytes = 0;
    std::uint64_t gradient_bytes = 0;
  };
  std::vector<EndPlace> ends = {};
  std::vector<Landing> landings = {};  // none unless every step has one micro-batch
  // Bytes of the largest late reduction, copied into the dtype in which it is sent; 0 if none needs
  // a copy.
  std::uint64_t wire_bytes = 0;

  [[nodiscard]] std::uint64_t end_weight_bytes() const {
    std::uint64_t bytes = 0;
    for (const EndPlace& end : ends) bytes += end.weight_bytes;
    return bytes;
  }
  [[nodiscard]] std::uint64_t end_gradient_bytes() const {
    std::uint64_t bytes = 0;
    for (const EndPlace& end : ends) bytes += end.gradient_bytes;
    return bytes;
  }
};

ShardPlan PlanShards(std::span<const UnitSpec> units, const Topology& topology,
                     const ShardPlanOptions& options);
// Makes a group of another rank's plan that of the rank of `topology`, which holds the same
// experts: the layout is the same, what the rank holds of it is not.
void PlaceRank(const Topology& topology, GroupPlan& group);
// `moments`: arrays of optimizer state, 2 for AdamW, 1 for SGD with momentum.
PlannedBytes PlanBytes(const ShardPlan& plan, int moments);

// Bytes of a group's whole array in a slot, aligned so that another group may follow.
[[nodiscard]] std::uint64_t SlotBytes(const GroupPlan& group, DType dtype);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_SHARD_PLAN_H_
