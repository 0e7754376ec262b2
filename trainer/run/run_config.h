// The configuration of a run, from all its sources.
#ifndef CKPT_TRAINER_RUN_RUN_CONFIG_H_
#define CKPT_TRAINER_RUN_RUN_CONFIG_H_

#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "trainer/run/data_settings.h"
#include "trainer/run/loop_settings.h"
#include "trainer/run/opened_run.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

struct RunConfig {
  trainer::TrainConfig train;
  LoopSettings loop;
  DataSettings data;
  // Every setting with its value, given or not. Reading them again makes the same run.
  layout::Configuration effective;
  // Where the state comes from: a checkpoint in `load`, otherwise a Hugging Face repository,
  // otherwise random weights.
  std::shared_ptr<OpenedRun> stored;
  std::optional<Path> init_from;
  // What `init` names but nothing reads, because `load` holds a checkpoint. Empty if that is in
  // `save`: the settings that started a run also resume it.
  std::optional<Path> idle_init;
  // 16 hex digits, equal in all parts of a run. The same settings always give the same id, for any
  // number of steps.
  std::string run_id;

  // Tells the training data from others (PlaceInData); empty: no data are open.
  std::string data_identity;
  bool restarts_data = false;  // resumes with other data than the stored run's

  [[nodiscard]] bool goes_on() const { return stored != nullptr; }
};

// Settings that a verb requires, in addition to those of model and batch.
struct RunNeeds {
  bool training = false;    // data_path, train_iters
  bool evaluation = false;  // valid_data_path or data_path
  // Weights are all that it takes: those of `load` if it is given, whether or not it holds a run.
  // No new run starts.
  bool weights = false;
  bool one_process = false;  // the ranks are its threads
  bool runs_ranks = true;    // else processes do not meet (ResolveTogether)
  // Settings of a model, which apply where none are given and neither `load` nor `init` names one.
  layout::Configuration model = {};
};

// The source that the setting `init` names; empty: weights are random. Errors: kUsage (neither
// random nor hf:DIR).
Result<std::optional<Path>> InitSource(const layout::Configuration& settings);

// The configuration of a run of `num_ranks` ranks. If `load` holds a checkpoint, its settings apply
// where none are given: those of its run, or of the model where only weights are taken. Otherwise
// `init: hf:DIR` gives the model's settings where none are given.
//
// Errors: kNotFound (`load` holds no checkpoint, and is not the folder in which a new run saves);
// those of InitSource, of reading its config.json, of ModelSettings, OpenNewestRun, StoredSettings,
// CheckKeepsModel and CheckTokensOf; and, all at once, settings that `needs` requires but that are
// missing, settings that have no effect, given the others, and those of ParseTrainConfig.
Result<RunConfig> ResolveRun(Storage& storage, const layout::Configuration& given, int num_ranks,
                             const RunNeeds& needs = {});

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_RUN_CONFIG_H_
