// Checkpoints that a run may resume.
#ifndef CKPT_TRAINER_RUN_INTERNAL_STORED_RUN_H_
#define CKPT_TRAINER_RUN_INTERNAL_STORED_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "converters/verbs/training_state.h"
#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/opened_run.h"

namespace ckpt::train {

// The directories below `root` to try, in order: iterations, newest first; or what a tracker names;
// or the root itself. Empty if `root` does not exist or contains only what an interrupted first
// save left.
Result<std::vector<Path>> ListCandidates(Storage& storage, const Path& root);

// Compares files with the checkpoint's manifest: those at positions part, part + parts, …. If the
// checkpoint could be opened, `index` is its index, and the bytes of tensors are left to the code
// that reads them.
// Errors: kChecksum and the others of VerifyManifest.
Status CheckStoredBytes(Storage& storage, const Path& checkpoint, const Manifest& manifest,
                        const CheckpointIndex* index, int part, int parts);

// What is read of a checkpoint.
enum class LoadedPart : std::uint8_t {
  kRun,           // the whole state
  kWeights,       // only weights and arguments, whatever else there is
  kRunOrWeights,  // the whole state; where no run is stored, as kWeights
};

// The training state in a checkpoint, with all its rows. Errors: those of OpenTrainingState or
// OpenModel; kMissing (there are weights, but no run).
Result<StatePtr> OpenStoredRun(Storage& storage, const Path& checkpoint, LoadedPart part);

// Whether more was read than kWeights reads.
[[nodiscard]] bool IsWholeRun(const TrainingState& state);

// The state in the newest candidate below `root` that can be opened, before its bytes are checked;
// null if there is no candidate. Errors: those of OpenStoredRun, either for every candidate, or for
// one that shows a problem of the system that others would show too (IsOfSystem).
Result<StatePtr> OpenNewestRun(Storage& storage, const Path& root, LoadedPart part);

// A run may save into an empty folder, or into one whose newest iteration it resumes. Otherwise it
// would replace another run's iterations one by one, and retention would remove the rest.
// `goes_on`: it resumes the whole state.
//
// Errors: kAlreadyExists.
Status CheckReplacesNoOtherRun(Storage& storage, const CheckpointSettings& settings, bool goes_on);

// What errors of a candidate name as the action.
[[nodiscard]] std::string GoingOnFrom(const Path& checkpoint);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_STORED_RUN_H_
