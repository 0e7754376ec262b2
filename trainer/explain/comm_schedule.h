// What a rank communicates in a step, as a pure function of the plan.
#ifndef CKPT_TRAINER_EXPLAIN_COMM_SCHEDULE_H_
#define CKPT_TRAINER_EXPLAIN_COMM_SCHEDULE_H_

#include <cstdint>

#include "trainer/params/shard_plan.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// Collectives of one kind. Bytes are those of the whole arrays that they gather or sum; what a rank sends or receives is that
// less its own part.
struct Collectives {
  std::int64_t calls = 0;
  std::uint64_t bytes = 0;

  Collectives& operator+=(const Collectives& other) {
    calls += other.calls;
    bytes += other.bytes;
    return *this;
  }
  friend bool operator==(const Collectives&, const Collectives&) = default;
};

struct MicroBatchSchedule {
  Collectives forward_gathers;  // of one unit's weights
  Collectives backward_gathers;
  Collectives reduces;  // of one unit's gradients
  // Tokens to their experts or back, of one layer: bytes that leave a rank at most.
  Collectives token_exchanges;
};

struct CommSchedule {
  // A later micro-batch finds some units where the one before left them.
  MicroBatchSchedule first;
  MicroBatchSchedule later;
  // Once a step, of one flat array:
  Collectives
      late_reduces;       // gradients, behind the last micro-batch, over a shard group or replicas
  Collectives refreshes;  // compute weights, behind the update
};

// The same calls as ParamStore makes for a model that goes through its layers and back; a test compares its counters.
CommSchedule PlanCommunication(const trainer::TrainConfig& config, const trainer::ShardPlan& plan);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_COMM_SCHEDULE_H_
