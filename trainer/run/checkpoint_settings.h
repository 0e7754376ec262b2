// What a run's settings say about its checkpoints.
#ifndef CKPT_TRAINER_RUN_CHECKPOINT_SETTINGS_H_
#define CKPT_TRAINER_RUN_CHECKPOINT_SETTINGS_H_

#include <cstdint>
#include <string>

#include "core/io/path.h"
#include "core/layout/resolve.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::train {

enum class SaveFormat : std::uint8_t {
  kFsdpDtensor,
  kHf,  // weights only
};
// "fsdp_dtensor", "hf": names of formats, and the words of the setting.
[[nodiscard]] std::string SaveFormatName(SaveFormat format);

// Settings of the same names.
struct CheckpointSettings {
  Path save;  // root of the run's checkpoints; empty: none are made
  Path load;  // root to go on from, where it has a checkpoint
  SaveFormat save_format = SaveFormat::kFsdpDtensor;
  std::int64_t save_interval = 0;  // iterations; 0: at the end only
  bool async_save = false;
  std::int64_t keep_checkpoints = 0;  // the newest ones of `save` that stay; 0: all
  // How parameters are named: transformer_impl (transformer_engine or local), expert_names (grouped
  // or sequential). Where nothing is asked for, as in the checkpoint that the run goes on from.
  layout::Choices naming;
  bool finetune = false;  // take the weights of `load`, and nothing else
  // Where data or seq_length are not those of the stored run: begin at the first sample of them, in
  // place of an error.
  bool restart_data = false;
  // Store the loss of the next batch with every checkpoint, for `prove`: the checkpoint waits for the next step.
  bool save_proof = true;
  bool prove = false;  // after loading, recompute the stored digest and loss
};

// Errors: kUsage, all at once, by way of `reader`.
CheckpointSettings ReadCheckpointSettings(trainer::SettingsReader& reader);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_CHECKPOINT_SETTINGS_H_
