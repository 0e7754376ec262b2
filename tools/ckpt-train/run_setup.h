// What all verbs that run ranks do before the ranks start.
#ifndef CKPT_TOOLS_CKPT_TRAIN_RUN_SETUP_H_
#define CKPT_TOOLS_CKPT_TRAIN_RUN_SETUP_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "tools/cli/command_line.h"
#include "tools/cli/streams.h"
#include "trainer/comm/host_group.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/rank_session.h"
#include "trainer/run/run_config.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// Errors: kUsage (the run would use random weights).
Status CheckHasWeights(const RunConfig& run);

// The name of the backend that a run with this `device` gets; told with -v. Errors: those of
// ChooseBackend.
Result<std::string> ChooseDevice(const trainer::TrainConfig& config, const std::string& device,
                                 const cli::CommonOptions& options, cli::Streams& streams);

// Resources of the ranks of this process.
class RunSetup {
 public:
  // Opens the files of the weights, if the run reads any. `run`, `storage` and `streams` outlive
  // it.
  // Errors: those of OpenModel and ChooseDevice.
  static Result<std::unique_ptr<RunSetup>> Create(const RunConfig& run, int num_ranks,
                                                  const std::string& device,
                                                  const cli::CommonOptions& options,
                                                  Storage& storage, cli::Streams& streams);

  // For the ranks. Valid as long as this object.
  [[nodiscard]] SessionInput session_input();
  // Removes the progress of reading from the screen. Called by one rank, when all have read.
  void EndProgress() { progress_.reset(); }

  // Runs `body` once per rank, as RunWorld does.
  Status RunRanks(const std::function<Status(trainer::HostGroup& world)>& body);

  // A rank with its weights, for verbs that do not train. Every rank calls it, inside RunRanks.
  // Errors: those of RankSession.
  Result<std::unique_ptr<RankSession>> StartRank(trainer::HostGroup& world);

  // What is to be said of the weights: which ones a run has that was told of two sources, and that
  // a part of the model is left out.
  [[nodiscard]] std::vector<std::string> WeightsTexts() const;

  [[nodiscard]] const CheckpointSettings& checkpoints() const { return checkpoints_; }
  // Ranks take only weights from a checkpoint, with any value of `finetune`; these alone cannot be
  // proved.
  void LoadWeightsOnly() {
    checkpoints_.finetune = true;
    checkpoints_.prove = false;
  }

 private:
  RunSetup(const RunConfig& run, const cli::CommonOptions& options, Storage& storage,
           cli::Streams& streams)
      : run_(run), options_(options), storage_(storage), streams_(streams) {}

  // The progress of what the ranks read first.
  void BeginProgress();

  const RunConfig& run_;
  const cli::CommonOptions options_;
  Storage& storage_;
  cli::Streams& streams_;
  CheckpointSettings checkpoints_;
  std::optional<ModelSource> init_;
  bool leaves_out_layers_ = false;  // of the weights
  int num_ranks_ = 1;
  std::string device_;
  int threads_ = 1;                 // per rank
  std::uint64_t budget_bytes_ = 0;  // per rank
  std::unique_ptr<ProgressSink> progress_;
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_RUN_SETUP_H_
