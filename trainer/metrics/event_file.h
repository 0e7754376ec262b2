// EventFile: the metrics of a run for TensorBoard.
#ifndef CKPT_TRAINER_METRICS_EVENT_FILE_H_
#define CKPT_TRAINER_METRICS_EVENT_FILE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/base/result.h"
#include "core/io/made_directories.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/metrics/event_record.h"
#include "trainer/metrics/run_position.h"

namespace ckpt::train {

// One thread.
class EventFile {
 public:
  // Locks `directory` for this run. Makes it if it does not exist, and removes it again if nothing
  // is written. `storage` outlives this. Errors: kAlreadyExists (another run is writing there),
  // those of the storage.
  static Result<EventFile> Take(Storage& storage, const Path& directory);

  // Makes a new file there. In the older files, readers drop the steps after `run.last_step`, which
  // this run writes again. Call it before the first scalar.
  //
  // Errors: kAlreadyExists (event files of another run; for a run that begins, files that do not
  // name their run count as such), those of the storage.
  Status Begin(const RunPosition& run);

  // Readers see the scalars at once. Errors: kNoSpace, kIo.
  Status Add(std::int64_t step, std::span<const Scalar> scalars);
  // Returns when everything is durable.
  Status Sync();

 private:
  EventFile(Storage& storage, Path directory)
      : storage_(&storage), directory_(std::move(directory)) {}
  Status AppendEvent(ByteSpan event);

  Storage* storage_;
  Path directory_;
  std::unique_ptr<DirectoryLock> lock_;
  MadeDirectories made_;  // removed while the lock is held
  std::unique_ptr<WritableFile> file_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_EVENT_FILE_H_
