// The configuration of a run, from everything that may say something about it.
#ifndef CKPT_TRAINER_RUN_RUN_CONFIG_H_
#define CKPT_TRAINER_RUN_RUN_CONFIG_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  // Every setting with its value, given or not: read again, it makes the same run.
  layout::Configuration effective;
  // Where the state comes from: a checkpoint in `load`, else a Hugging Face repository, else
  // weights are drawn.
  std::shared_ptr<OpenedRun> stored;
  std::optional<Path> init_from;
  // The same in all parts of a run, and whenever the same settings start it, for however many steps: 16 hex digits.
  std::string run_id;

  // Of the data it trains on (SourceFacts); empty: none are open.
  std::string data_identity;
  bool restarts_data = false;  // goes on with other data than the stored run had

  [[nodiscard]] bool goes_on() const { return stored != nullptr; }
};

// Settings that a verb cannot do without, beside those of model and batch.
struct RunNeeds {
  bool training = false;    // data_path, train_iters
  bool evaluation = false;  // valid_data_path or data_path
  bool weights = false;     // those of `load`, where it is given: nothing starts
};

// What the setting `init` names; nothing: weights are drawn. Errors: kUsage (neither random nor hf:DIR).
Result<std::optional<Path>> InitSource(const layout::Configuration& settings);

// A run of `num_ranks` ranks. Where `load` holds a checkpoint, the settings it was made with go
// under the given ones; else the model's settings come from `init: hf:DIR`, where not given
// otherwise.
//
// Errors: kNotFound (`load` holds no checkpoint, and is not where a run that starts will save), those
//         of InitSource, of reading its config.json, of ModelSettings, of OpenNewestRun,
//         StoredSettings, CheckKeepsModel and CheckTokensOf, and all at once what `needs` names and is missing,
//         settings that do nothing beside the others, and those of ParseTrainConfig.
Result<RunConfig> ResolveRun(Storage& storage, const layout::Configuration& given, int num_ranks,
                             const RunNeeds& needs = {});

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_RUN_CONFIG_H_
