// MetricsLog: a file with one line per step, which stays complete over interruptions of its run.
#ifndef CKPT_TRAINER_METRICS_METRICS_LOG_H_
#define CKPT_TRAINER_METRICS_METRICS_LOG_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/result.h"
#include "core/io/made_directories.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/metrics/run_position.h"

namespace ckpt::train {

// One thread.
class MetricsLog {
 public:
  // Locks the file for this run. Makes it and its directory if they do not exist, and removes what
  // it made if no line is written. `storage` outlives this. Errors: kAlreadyExists (another run is
  // writing it), those of the storage.
  static Result<MetricsLog> Take(Storage& storage, const Path& path);
  MetricsLog(MetricsLog&&) = default;
  MetricsLog& operator=(MetricsLog&&) = default;
  ~MetricsLog();

  // Continues after the line of step `run.last_step`. Cuts off later lines, because those steps are
  // repeated, and an incomplete line. Call it before the first line.
  //
  // Errors: kBadMetadata (the file holds something else), kAlreadyExists (lines of another run; for
  // a run that begins, lines that do not name their run count as such), those of the storage. After
  // an error the file is unchanged.
  Status GoOn(const RunPosition& run);

  // `line` ends with '\n'. Readers see it at once. Errors: kNoSpace, kIo.
  Status Append(std::string_view line);
  // Returns when all lines are durable.
  Status Sync();

 private:
  MetricsLog(Storage& storage, Path path) : storage_(&storage), path_(std::move(path)) {}

  Storage* storage_;
  Path path_;
  MadeDirectories directories_;
  bool is_made_ = false;                // by this object
  std::unique_ptr<WritableFile> file_;  // null after a move
  std::uint64_t size_bytes_ = 0;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_METRICS_LOG_H_
