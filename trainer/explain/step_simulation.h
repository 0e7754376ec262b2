// What a step takes if its units' computing and communication take given times: the queues of
// ParamStore and the model's loop over its layers, as arithmetic.
#ifndef CKPT_TRAINER_EXPLAIN_STEP_SIMULATION_H_
#define CKPT_TRAINER_EXPLAIN_STEP_SIMULATION_H_

#include <vector>

#include "trainer/params/shard_plan.h"

namespace ckpt::train {

// Of one unit in a micro-batch, in milliseconds.
struct UnitWork {
  bool is_end = false;  // UnitSpec::is_end
  double forward = 0;
  double backward = 0;
  double exchange_forward = 0;  // of tokens with other ranks' experts; the computation waits
  double exchange_backward = 0;
  double gather = 0;       // whole weights into a slot, in each pass that does not find them there
  double reduce = 0;       // gradients, at the end of its backward
  double late_reduce = 0;  // more of that after the last micro-batch
  double refresh = 0;      // weights that are held whole, behind the update
  double refresh_outer = 0;  // slices of replicas, behind the update; before `gather` or `refresh`
};

struct StepWork {
  // In the order of the forward: the embedding, the layers, the head; or the one end of a model
  // whose embedding is its output layer too, then the layers.
  std::vector<UnitWork> units;
  double head = 0;  // output layer and loss, forward and backward, between the passes
  double update = 0;
  int micro_batches = 1;
  trainer::SlotOptions slots = {};
  bool overlaps_gathers = false;
  bool overlaps_reduces = false;
};

// The parts add up to the whole.
struct StepTime {
  double compute = 0;
  double gather_wait = 0;
  double reduce_wait = 0;
  double exchange = 0;

  [[nodiscard]] double exposed() const { return gather_wait + reduce_wait + exchange; }
  [[nodiscard]] double total() const { return compute + exposed(); }
};

// A step behind another one, so that its first gathers are those of refreshed weights. The host is
// ahead of the queues, and all ranks take the same time.
StepTime SimulateStep(const StepWork& work);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_STEP_SIMULATION_H_
