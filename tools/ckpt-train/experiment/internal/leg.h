// One run of an experiment: ranks that train from a start over some stretches, watched.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_LEG_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_LEG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/experiment/internal/samples.h"
#include "tools/cli/command_line.h"
#include "tools/cli/streams.h"
#include "trainer/metrics/step_metrics.h"
#include "trainer/run/run_config.h"
#include "trainer/run/run_progress.h"

namespace ckpt::train {

// The state between steps.
struct Station {
  RunProgress progress;
  std::string digest;                // of the whole state
  std::vector<float> expert_biases;  // the routers' corrections, layer by layer
};

struct Leg {
  std::vector<Station> stations;  // the start, and the end of every stretch
  std::vector<StepMetrics> steps;
  std::vector<ReadSample> samples;  // by number
  std::uint64_t seed = 0;
  double seconds = 0;  // from before the start to the end
};

struct Stretch {
  std::int64_t until = 0;  // steps of the whole run
  bool saves = false;      // at its end, where the run's settings say
};

struct LegOptions {
  int num_ranks = 1;
  std::string device = {};  // name of a backend
  std::vector<Stretch> stretches;
  std::function<void(const StepMetrics&)> on_step;  // by rank 0
};

// Starts as `run` says and trains, ranks as threads of this process. Stretches follow each other as
// in one run: nothing is loaded in between.
//
// Errors: those of opening the data, of RankSession and of TrainLoop.
Result<Leg> RunLeg(const RunConfig& run, const LegOptions& leg, const cli::CommonOptions& options,
                   Storage& storage, cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_LEG_H_
