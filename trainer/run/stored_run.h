// Checkpoints that a run may go on from.
#ifndef CKPT_TRAINER_RUN_STORED_RUN_H_
#define CKPT_TRAINER_RUN_STORED_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/opened_run.h"

namespace ckpt::train {

// Directories below `root` in the order to try them: iterations, newest first; else what a tracker
// names, or the root itself. None if `root` does not exist or holds nothing but what a first save left
// that was interrupted.
Result<std::vector<Path>> ListCandidates(Storage& storage, const Path& root);

// Compares files with the checkpoint's manifest: those at positions part, part + parts, …. Where the checkpoint could be
// opened, `index` is its own, and bytes of tensors are left to whoever reads them.
// Errors: kChecksum and the others of VerifyManifest.
Status CheckStoredBytes(Storage& storage, const Path& checkpoint, const Manifest& manifest,
                        const CheckpointIndex* index, int part, int parts);

// The training state in a checkpoint of ours or of Megatron-FSDP, with all the rows it has.
// `weights_only`: what else there is of the state is not looked at.
Result<StatePtr> OpenStoredRun(Storage& storage, const Path& checkpoint, bool weights_only);

// The state in the newest candidate below `root` that can be opened, whatever its bytes are worth;
// null if there is no candidate. Errors: those of OpenStoredRun, of every candidate or of one that any
// other would give, too (IsOfSystem).
Result<StatePtr> OpenNewestRun(Storage& storage, const Path& root, bool weights_only);

// A run may save where nothing is, or where it goes on from the newest iteration: it would replace
// another run's iterations one by one, and retention remove the rest. `goes_on`: with its whole state.
//
// Errors: kAlreadyExists.
Status CheckSavesNoneAway(Storage& storage, const CheckpointSettings& settings, bool goes_on);

// What errors of a candidate say was being done.
[[nodiscard]] std::string GoingOnFrom(const Path& checkpoint);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_STORED_RUN_H_
