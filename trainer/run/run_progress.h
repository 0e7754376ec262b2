// How far a run has come, and who is told of it.
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
  std::int64_t consumed_samples = 0;  // of the training data
  std::optional<double> next_loss;    // of the batch that follows, before it is trained on
};

// Told on rank 0: "cannot go on from iter_0000100: …", "saved iteration 100 in 0.8 s". May be
// empty.
using Notice = std::function<void(const std::string& text)>;

// What a rank tells on the way. Either may be empty; rank 0 alone uses them.
struct RunVoice {
  Notice say;
  // Where the progress of a save is told that training waits for.
  std::function<std::unique_ptr<ProgressSink>()> make_progress;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_RUN_PROGRESS_H_
