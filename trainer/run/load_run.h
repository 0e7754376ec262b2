// Resumes a stored run: all ranks load the newest intact checkpoint.
#ifndef CKPT_TRAINER_RUN_LOAD_RUN_H_
#define CKPT_TRAINER_RUN_LOAD_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/resolve.h"
#include "trainer/comm/host_group.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/opened_run.h"
#include "trainer/run/run_progress.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// What a run learns from the checkpoint that it resumes, in addition to the state.
struct LoadedRun {
  Path checkpoint;
  std::vector<Path> refused;                // newer ones that could not be resumed
  RunProgress progress;                     // a new run's, if only weights were taken
  std::optional<std::string> state_digest;  // as it was stored
  Path assets;                              // config.json and tokenizer; empty: there are none
  layout::Choices naming;                   // how its parameters are named
  int tensor_ranks = 1;                     // Megatron's
};

// Loads the newest valid checkpoint of `settings.load`: weights, optimizer and schedule; with
// `finetune` only weights. Empty if there is no checkpoint. Reports why it does not take a newer
// one. Every rank calls it.
//
// If that is the checkpoint that the ranks of this process have `opened`, its metadata are not read
// again. Closes `opened`.
//
// REQUIRES: no checkpoint is replaced meanwhile. If one is, the load takes what was opened or
// reports damage; it never mixes the two.
// Errors: those of OpenStoredRun and LoadState; those of every candidate, if none is valid.
Result<std::optional<LoadedRun>> LoadRun(Storage& storage, const CheckpointSettings& settings,
                                         OpenedRun& opened, trainer::RankTrainer& trainer,
                                         trainer::HostGroup& world, const LoadVoice& voice);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_LOAD_RUN_H_
