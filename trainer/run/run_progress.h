// How far a run has come, and the functions that report it.
#ifndef CKPT_TRAINER_RUN_RUN_PROGRESS_H_
#define CKPT_TRAINER_RUN_RUN_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/exec/progress.h"

namespace ckpt::train {

struct RunProgress {
  std::int64_t iteration = 0;         // finished steps
  std::int64_t consumed_samples = 0;  // from the training data
  std::optional<double> next_loss;    // of the next batch, before the run trains on it
};

// Called on rank 0 with a line of text: "cannot resume iter_0000100: …", "saved iteration 100 in
// 0.8 s". May be empty.
using Notice = std::function<void(const std::string& text)>;

// Where a load reports what it does.
struct LoadVoice {
  Notice notice;           // on rank 0
  ProgressSink& progress;  // of reading, on every rank
};

// Where a rank reports what it does. Both may be empty; only rank 0 uses them.
struct RunVoice {
  Notice say;
  // Makes the progress report of a save that training waits for.
  std::function<std::unique_ptr<ProgressSink>()> make_progress;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_RUN_PROGRESS_H_
