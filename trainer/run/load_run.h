// Going on with a stored run: all ranks load the newest checkpoint that is whole.
#ifndef CKPT_TRAINER_RUN_LOAD_RUN_H_
#define CKPT_TRAINER_RUN_LOAD_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "core/layout/resolve.h"
#include "trainer/comm/communicator.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/opened_run.h"
#include "trainer/run/run_progress.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// What a run learns from the checkpoint that it goes on from, beside the state.
struct LoadedRun {
  Path checkpoint;
  std::vector<Path> refused;                // newer ones, that could not be gone on from
  RunProgress progress;                     // a new run's, where only weights were taken
  std::optional<std::string> state_digest;  // that was stored
  Path assets;                              // config.json and tokenizer; empty: there are none
  layout::Choices naming;                   // how its parameters are named
  int tensor_ranks = 1;                     // of Megatron
};

// What a load tells on the way.
struct LoadVoice {
  Notice notice;           // on rank 0
  ProgressSink& progress;  // of what is read, on every rank
};

// Loads the newest valid checkpoint of `settings.load`: weights, optimizer and schedule
// (`finetune`: weights). Nothing if there is none. Says why it is not a newer one. Every rank calls
// it.
//
// Where that is the checkpoint that the ranks of this process have `opened`, its metadata are not
// read again. Closes it.
//
// REQUIRES: nobody replaces a checkpoint meanwhile. Of one that is replaced what was opened is loaded,
// or it is taken for damaged; never a mixture.
// Errors: those of OpenStoredRun and LoadState; of every candidate, if none is valid.
Result<std::optional<LoadedRun>> LoadRun(Storage& storage, const CheckpointSettings& settings,
                                         OpenedRun& opened, trainer::RankTrainer& trainer,
                                         trainer::Communicator& world, const LoadVoice& voice);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_LOAD_RUN_H_
