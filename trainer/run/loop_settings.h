// How long a run trains, and what it tells on the way.
#ifndef CKPT_TRAINER_RUN_LOOP_SETTINGS_H_
#define CKPT_TRAINER_RUN_LOOP_SETTINGS_H_

#include <cstdint>

#include "core/io/path.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::train {

// Settings of the same names. Intervals count steps; 0: never.
struct LoopSettings {
  std::int64_t train_iters = 0;      // steps of the whole run, resumed parts included
  std::int64_t exit_interval = 0;    // the run ends at the next multiple
  std::int64_t eval_interval = 100;  // evaluations, and there is one at the end
  std::int64_t eval_iters = 10;      // batches of an evaluation, of global_batch_size
  std::int64_t log_interval = 10;    // lines for people
  Path metrics;                      // a JSON object a step; empty: none
  Path tensorboard_dir;              // event files; empty: none
};

// Errors: kUsage, all at once, by way of `reader`.
LoopSettings ReadLoopSettings(trainer::SettingsReader& reader);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_LOOP_SETTINGS_H_
