// Checkpoints of a running training: where it starts from, what it leaves behind.
#ifndef CKPT_TOOLS_CKPT_TRAIN_RUN_CHECKPOINTS_H_
#define CKPT_TOOLS_CKPT_TRAIN_RUN_CHECKPOINTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/resolve.h"
#include "core/layout/value.h"
#include "tools/ckpt-train/run_config.h"
#include "trainer/comm/communicator.h"
#include "trainer/model/settings_reader.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// Settings of the same names.
struct CheckpointSettings {
  Path save;                                 // root of the run's checkpoints; empty: none are made
  Path load;                                 // root to go on from, where it has a checkpoint
  std::string save_format = "fsdp_dtensor";  // or "hf": weights only
  std::int64_t save_interval = 0;            // iterations; 0: at the end only
  bool async_save = false;
  std::int64_t keep_checkpoints = 0;  // the newest ones of `save` that stay; 0: all
  // How parameters are named: transformer_impl (transformer_engine or local), expert_names (grouped or sequential). Where
  // nothing is asked for, as in the checkpoint that the run goes on from.
  layout::Choices naming;
  bool finetune = false;  // take the weights of `load`, and nothing else
  // Compute the loss of the next batch at every save and store it, for `prove`.
  bool save_proof = true;
  bool prove = false;  // after loading, recompute the stored digest and loss
};

// Errors: kUsage, all at once, by way of `reader`.
CheckpointSettings ReadCheckpointSettings(trainer::SettingsReader& reader);

// How far a run has come.
struct RunProgress {
  std::int64_t iteration = 0;         // finished steps
  std::int64_t consumed_samples = 0;  // of the training data
  std::optional<double> next_loss;    // of the batch that follows, before it is trained on
};

// Settings that the newest valid checkpoint below `load` was made with; nothing if there is none.
// Those that are given go before them. Errors: kUsage, those of OpenTrainingState.
Result<std::optional<layout::Configuration>> StoredSettings(Storage& storage,
                                                            const CheckpointSettings& settings);

// One a rank. All its calls are collective: every rank makes the same ones in the same order.
class RunCheckpoints {
 public:
  // Told on rank 0: "took iteration 80: 100 is damaged: …", "saved iteration 100 in 0.8 s".
  using Notice = std::function<void(const std::string& text)>;

  // `run`, `trainer`, `world` and `storage` outlive it.
  static Result<std::unique_ptr<RunCheckpoints>> Create(
      Storage& storage, CheckpointSettings settings, const RunConfig& run,
      trainer::RankTrainer& trainer, trainer::Communicator& world, Notice notice);
  virtual ~RunCheckpoints() = default;

  // Loads the newest valid checkpoint of `load`: weights, optimizer and schedule (`finetune`: weights). Nothing if there
  // is none. With `prove` the digest of what arrived is compared with the stored one.
  // Errors: kValueMismatch (the digest differs), those of OpenTrainingState.
  virtual Result<std::optional<RunProgress>> Load() = 0;
  // Makes a checkpoint durable; with `async_save` returns when the state has been copied. One that is still under way is
  // waited for first. Errors: those of either.
  virtual Status Save(const RunProgress& progress) = 0;
  // Between steps: brings a background save on, and returns what went wrong with it.
  virtual Status Poll() = 0;
  // Waits for a background save.
  virtual Status Finish() = 0;
  // Digest of weights, buffers, moments and progress; the same on every mesh. 32 hex digits.
  virtual Result<std::string> StateDigest(const RunProgress& progress) = 0;
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_RUN_CHECKPOINTS_H_
