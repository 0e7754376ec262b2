// Checkpoints that a run may go on from.
#ifndef CKPT_TOOLS_CKPT_TRAIN_STORED_RUN_H_
#define CKPT_TOOLS_CKPT_TRAIN_STORED_RUN_H_

#include <string>
#include <vector>

#include "converters/verbs/training_state.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::train {

// Directories below `root` in the order to try them: iterations, newest first; else what a tracker
// names, or the root itself. None if `root` does not exist or holds nothing but what a first save left
// that was interrupted.
Result<std::vector<Path>> ListCandidates(Storage& storage, const Path& root);

// Compares files with the checkpoint's sidecar: those at positions part, part + parts, …. OK without
// a sidecar.
// Errors: kChecksum and the others of VerifyManifest, those of ParseManifest.
Status CheckStoredBytes(Storage& storage, const Path& checkpoint, int part, int parts);

// What errors of such a checkpoint say was being done.
[[nodiscard]] std::string GoingOnFrom(const Path& checkpoint);

// The training state in a checkpoint of ours or of Megatron-FSDP, with all the rows it has.
// `weights_only`: what else there is of the state is not looked at.
Result<TrainingState> OpenStoredRun(Storage& storage, const Path& checkpoint, bool weights_only);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_STORED_RUN_H_
