#include "trainer/run/loop_settings.h"

namespace ckpt::train {

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
