// SaveFolder: the folder in which a run saves, checked before the first step and locked for the
// run.
#ifndef CKPT_TRAINER_RUN_SAVE_FOLDER_H_
#define CKPT_TRAINER_RUN_SAVE_FOLDER_H_

#include <memory>

#include "core/base/result.h"
#include "core/io/made_directories.h"
#include "core/io/storage.h"
#include "trainer/comm/host_group.h"
#include "trainer/run/checkpoint_settings.h"

namespace ckpt::train {

// While rank 0 holds it, no other run and no conversion writes into the folder.
class SaveFolder {
 public:
  // Makes the folder if it does not exist, and removes it again if the run leaves nothing in it.
  // Then every rank writes a file into it, which rank 0 must see, and removes the file. `goes_on`:
  // the run resumes the whole state of a stored run. Does nothing without the setting `save`. Every
  // rank calls it.
  //
  // Errors: kAlreadyExists (another run is saving there; those of CheckReplacesNoOtherRun),
  // kMissingFile (a rank writes into another folder of that name), kNoSpace, kIo.
  static Result<SaveFolder> Take(Storage& storage, const CheckpointSettings& settings, bool goes_on,
                                 trainer::HostGroup& world);

 private:
  SaveFolder() = default;
  // On rank 0.
  static Result<SaveFolder> TakeFirst(Storage& storage, const CheckpointSettings& settings,
                                      bool goes_on);

  // On rank 0.
  std::unique_ptr<DirectoryLock> lock_;
  MadeDirectories made_;  // removed while the lock is held
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_SAVE_FOLDER_H_
