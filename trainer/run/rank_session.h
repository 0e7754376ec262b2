// RankSession: one rank with a model and its state, which is loaded, read or drawn.
#ifndef CKPT_TRAINER_RUN_RANK_SESSION_H_
#define CKPT_TRAINER_RUN_RANK_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "trainer/backend/backend.h"
#include "trainer/comm/host_group.h"
#include "trainer/ledger/recorded_ops.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/run_checkpoints.h"
#include "trainer/run/run_config.h"
#include "trainer/run/run_progress.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// What every rank of a process gets. Everything outlives the ranks.
struct SessionInput {
  const RunConfig& run;
  const CheckpointSettings& checkpoints;
  Storage& storage;
  const ModelSource* init = nullptr;               // source of weights; null: weights are random
  std::uint64_t budget_bytes = 0;                  // for reading weights, per rank
  int threads = 1;                                 // per rank
  std::string device{trainer::kReferenceBackend};  // name of a backend
  bool records = false;                            // the operations of rank 0 can be recorded
  ProgressSink& progress;                          // of reading weights or a whole state
  // Makes the progress of a save that training waits for; may be empty.
  std::function<std::unique_ptr<ProgressSink>()> make_save_progress = {};
};

// Thread-safety: the rank's thread. Every rank makes the same calls.
class RankSession {
 public:
  // The session has no weights yet. Errors: those of MakeBackend and RankTrainer.
  static Result<std::unique_ptr<RankSession>> Create(const SessionInput& input,
                                                     trainer::HostGroup& world, Notice notice);

  // Sets the state: from the checkpoint that the run resumes, or with weights that are read or
  // drawn.
  //
  // Errors: kNotFound (the checkpoint that the settings came from has disappeared), those of
  // LoadRun, RunCheckpoints::Prove, ReadInitialWeights and RankTrainer.
  Result<RunProgress> Start();

  [[nodiscard]] trainer::RankTrainer& trainer() { return *trainer_; }
  [[nodiscard]] RunCheckpoints& checkpoints() { return *checkpoints_; }
  // The trainer's operations; null on ranks that do not record.
  [[nodiscard]] trainer::RecordedOps* recorded() { return recorded_ ? &*recorded_ : nullptr; }
  // See LoopInput.
  [[nodiscard]] double ideal_step_ms() const;

 private:
  RankSession(const SessionInput& input, trainer::HostGroup& world, Notice notice)
      : input_(input), world_(world), notice_(std::move(notice)) {}
  Result<RunProgress> GoOn();

  const SessionInput input_;
  trainer::HostGroup& world_;
  std::unique_ptr<trainer::HostGroup> saving_;  // the world of the saves
  const Notice notice_;
  trainer::Backend backend_;
  std::optional<trainer::RecordedOps> recorded_;
  std::unique_ptr<trainer::RankTrainer> trainer_;
  std::optional<RunCheckpoints> checkpoints_;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_RANK_SESSION_H_
