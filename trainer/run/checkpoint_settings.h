// The settings of a run that concern its checkpoints.
#ifndef CKPT_TRAINER_RUN_CHECKPOINT_SETTINGS_H_
#define CKPT_TRAINER_RUN_CHECKPOINT_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/chosen_forms.h"
#include "core/io/path.h"
#include "core/layout/resolve.h"
#include "formats/registry/registry.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::train {

// Settings of the same names.
struct CheckpointSettings {
  Path save;  // folder of the run's checkpoints; empty: no checkpoints
  Path load;  // folder of the checkpoints to resume, if it has one
  const Format* save_format = &UsualRunFormat();  // without FormOfRun(…).run: weights only
  ChosenForms forms;               // of save_format: its options, as settings with _ for -
  std::int64_t save_interval = 0;  // iterations; 0: only at the end
  bool async_save = false;
  std::int64_t keep_checkpoints = 0;  // how many of the newest ones in `save` to keep; 0: all
  // How parameters are named: transformer_impl (transformer_engine or local), expert_names (grouped
  // or sequential). Without a setting, as in the checkpoint that the run resumes.
  layout::Choices naming;
  bool finetune = false;  // take only the weights of `load`
  // If data or seq_length differ from those of the stored run, begin at their first sample instead
  // of failing.
  bool restart_data = false;
  // Store the loss of the next batch with every checkpoint, for `prove`. The checkpoint is then
  // written one step later.
  bool save_proof = true;
  bool prove = false;  // after loading, recompute the stored digest and loss
};

// Errors: kUsage, all at once, reported by `reader`; among them forms that only other formats have.
CheckpointSettings ReadCheckpointSettings(trainer::SettingsReader& reader);

// The settings that choose among the forms of `format`.
[[nodiscard]] std::vector<std::string> FormSettings(const Format& format);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_CHECKPOINT_SETTINGS_H_
