// How long a run trains, what it reports, and how long its ranks wait for each other.
#ifndef CKPT_TRAINER_RUN_LOOP_SETTINGS_H_
#define CKPT_TRAINER_RUN_LOOP_SETTINGS_H_

#include <chrono>
#include <cstdint>

#include "core/io/path.h"
#include "trainer/comm/world.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::train {

// Settings of the same names. Intervals count steps; 0: never.
struct LoopSettings {
  std::int64_t train_iters = 0;      // steps of the whole run, with those before a resume
  std::int64_t exit_interval = 0;    // the run ends at the next multiple
  std::int64_t eval_interval = 100;  // evaluations; there is one at the end too
  std::int64_t eval_iters = 10;      // batches per evaluation, of global_batch_size
  std::int64_t log_interval = 10;    // lines of text
  Path metrics;                      // file for one JSON object per step; empty: none
  Path tensorboard_dir;              // event files; empty: none
  // distributed_timeout_minutes: of a call in which ranks wait for each other (WorldOptions); 0:
  // none.
  std::chrono::milliseconds timeout = trainer::kDefaultTimeout;
};

// The step after which a run ends that has done `iteration` steps.
[[nodiscard]] std::int64_t LastStep(const LoopSettings& settings, std::int64_t iteration);

// Errors: kUsage, all at once, reported by `reader`.
LoopSettings ReadLoopSettings(trainer::SettingsReader& reader);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_LOOP_SETTINGS_H_
