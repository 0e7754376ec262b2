// MetricsLog: the file with a line for every step, which outlives interruptions of its run.
#ifndef CKPT_TOOLS_CKPT_TRAIN_METRICS_LOG_H_
#define CKPT_TOOLS_CKPT_TRAIN_METRICS_LOG_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/run_progress.h"

namespace ckpt::train {

// One thread.
class MetricsLog {
 public:
  // Goes on with the file behind the line of step `run.last_step`: what follows is cut off, since those steps are repeated,
  // and a line that was cut short too. Makes the file, and its directory, if they are not there.
  //
  // Errors: kBadMetadata (the file holds something else), kAlreadyExists (lines of another run; lines that do not say whose
  // they are count as such for a run that begins), those of the storage. Then the file stays as it is.
  static Result<MetricsLog> Open(Storage& storage, const Path& path, const RunPosition& run);

  // `line` ends with a line end. Readers see it at once. Errors: kNoSpace, kIo.
  Status Append(std::string_view line);
  // Returns when all lines are durable.
  Status Sync();

 private:
  MetricsLog(std::unique_ptr<WritableFile> file, std::uint64_t size_bytes)
      : file_(std::move(file)), size_bytes_(size_bytes) {}

  std::unique_ptr<WritableFile> file_;
  std::uint64_t size_bytes_;
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_METRICS_LOG_H_
