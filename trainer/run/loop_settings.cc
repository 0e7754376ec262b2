#include "trainer/run/loop_settings.h"

#include <algorithm>
#include <chrono>
#include <ratio>
#include <string_view>

#include <fmt/format.h>

namespace ckpt::train {
namespace {

std::chrono::milliseconds ReadTimeout(trainer::SettingsReader& reader,
                                      std::chrono::milliseconds otherwise) {
  constexpr std::string_view kName = "distributed_timeout_minutes";
  constexpr double kMost = 525600;  // a year
  using Minutes = std::chrono::duration<double, std::ratio<60>>;
  const double minutes = reader.Number(kName, Minutes(otherwise).count());
  // However short, it is one: 0 stands for none.
  if (minutes <= kMost) return std::chrono::ceil<std::chrono::milliseconds>(Minutes(minutes));
  reader.Refuse(kName, "is not a valid number", fmt::format("at most {}", kMost));
  return otherwise;
}

}  // namespace

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
  settings.timeout = ReadTimeout(reader, settings.timeout);
  return settings;
}

}  // namespace ckpt::train
