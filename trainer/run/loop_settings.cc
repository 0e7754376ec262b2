#include "trainer/run/loop_settings.h"

#include <algorithm>

namespace ckpt::train {

std::int64_t LastStep(const LoopSettings& settings, std::int64_t iteration) {
  if (settings.exit_interval == 0) return settings.train_iters;
  const std::int64_t next_exit = (iteration / settings.exit_interval + 1) * settings.exit_interval;
  return std::min(settings.train_iters, next_exit);
}

LoopSettings ReadLoopSettings(trainer::SettingsReader& reader) {
  LoopSettings settings;
  settings.train_iters = reader.Int("train_iters", settings.train_iters);
  settings.exit_interval = reader.Int("exit_interval", settings.exit_interval);
  settings.eval_interval = reader.Int("eval_interval", settings.eval_interval);
  settings.eval_iters = reader.Int("eval_iters", settings.eval_iters, 1);
  settings.log_interval = reader.Int("log_interval", settings.log_interval);
  settings.metrics = reader.Text("metrics", "");
  settings.tensorboard_dir = reader.Text("tensorboard_dir", "");
  return settings;
}

}  // namespace ckpt::train
