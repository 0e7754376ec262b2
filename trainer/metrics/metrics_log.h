// MetricsLog: the file with a line for every step, which outlives interruptions of its run.
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
  // Keeps the file to this run. Makes it, and its directory, if they are not there; what it made goes again if no line comes.
  // `storage` outlives this. Errors: kAlreadyExists (another run is writing it), those of the storage.
  static Result<MetricsLog> Take(Storage& storage, const Path& path);
  MetricsLog(MetricsLog&&) = default;
  MetricsLog& operator=(MetricsLog&&) = default;
  ~MetricsLog();

  // Goes on behind the line of step `run.last_step`: what follows is cut off, since those steps are repeated, and a line that
  // was cut short too. Comes before the first line.
  //
  // Errors: kBadMetadata (the file holds something else), kAlreadyExists (lines of another run; lines that do not say whose
  // they are count as such for a run that begins), those of the storage. Then the file stays as it is.
  Status GoOn(const RunPosition& run);

  // `line` ends with a line end. Readers see it at once. Errors: kNoSpace, kIo.
  Status Append(std::string_view line);
  // Returns when all lines are durable.
  Status Sync();

 private:
  MetricsLog(Storage& storage, Path path) : storage_(&storage), path_(std::move(path)) {}

  Storage* storage_;
  Path path_;
  MadeDirectories directories_;
  bool is_made_ = false;                // by this
  std::unique_ptr<WritableFile> file_;  // null once it was moved
  std::uint64_t size_bytes_ = 0;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_METRICS_LOG_H_
