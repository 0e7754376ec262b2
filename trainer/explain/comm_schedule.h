// What a rank communicates in a step, as a pure function of the plan.
#ifndef CKPT_TRAINER_EXPLAIN_COMM_SCHEDULE_H_
#define CKPT_TRAINER_EXPLAIN_COMM_SCHEDULE_H_

#include <cstdint>

#include "trainer/params/shard_plan.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// Collectives of one kind. `bytes` is the size of the whole arrays that they gather or sum. A rank
// sends or receives that size without its own part.
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
  // Tokens of one layer on the way to their experts or back: the most bytes that leave a rank.
  Collectives token_exchanges;
};

struct CommSchedule {
  // A later micro-batch finds some units in the slots where the previous one left them.
  MicroBatchSchedule first;
  MicroBatchSchedule later;
  // Once per step, each for one flat array:
  Collectives
      late_reduces;       // gradients, after the last micro-batch, over a shard group or replicas
  Collectives refreshes;  // compute weights, after the update
};

// The calls that ParamStore makes for a model that runs through its layers forward and backward. A
// test compares this with the store's counters.
CommSchedule PlanCommunication(const trainer::TrainConfig& config, const trainer::ShardPlan& plan);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_COMM_SCHEDULE_H_
