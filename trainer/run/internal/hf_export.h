// A save as a Hugging Face repository: the weights a run wrote, converted.
#ifndef CKPT_TRAINER_RUN_INTERNAL_HF_EXPORT_H_
#define CKPT_TRAINER_RUN_INTERNAL_HF_EXPORT_H_

#include <cstdint>

#include "converters/verbs/save_training_state.h"
#include "core/base/status.h"
#include "core/io/storage.h"

namespace ckpt::train {

// Where a run writes what will become the repository `target`: by its name no checkpoint yet.
[[nodiscard]] Path WeightsToExport(const Path& target);

// Whether the weights of `state` can become a repository with the side files in `assets`, before there is any to save.
// Errors: kNotFound (no config.json), those of CheckSavesAsModel.
Status CheckExport(Storage& storage, const Path& assets, const RunningState& state,
                   std::int64_t padded_vocab_size);

// Makes the repository of what lies there, in bounded memory, and removes that.
// Errors: those of PrepareConversion and RunConversion: the repository needs a config.json, which a
//         run has that began from one.
Status ExportToHf(Storage& storage, const Path& target);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_HF_EXPORT_H_
