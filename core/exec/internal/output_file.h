// A file of the plan while its parts are written in any order.
#ifndef CKPT_CORE_EXEC_INTERNAL_OUTPUT_FILE_H_
#define CKPT_CORE_EXEC_INTERNAL_OUTPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/exec/block_checksums.h"
#include "core/io/storage.h"

namespace ckpt {

// The file is open only from its first part to its last one, so that a plan may have more files
// than can be open at once. Thread-safe.
class OutputFile {
 public:
  // `path` exists and has `size_bytes`, unless SetSize changes the size later. `file`: its handle
  // if it is already open; if null, it is opened for the first part.
  OutputFile(Storage& storage, Path path, std::uint64_t size_bytes,
             std::shared_ptr<WritableFile> file = nullptr)
      : storage_(storage),
        path_(std::move(path)),
        is_open_elsewhere_(file != nullptr),
        size_bytes_(size_bytes),
        file_(std::move(file)) {}

  // What the plan puts into the file. Call both before anything is written. A literal is written
  // when the file is opened, and must outlive this.
  void AddLiteral(const WriteLiteral& literal) CKPT_EXCLUDES(mutex_);
  void AddPart() CKPT_EXCLUDES(mutex_);

  // Sets the size, where it is known only after writing. Call it before the last part is done.
  // Bytes after it were left by an interrupted run and are cut off.
  void SetSize(std::uint64_t size_bytes) CKPT_EXCLUDES(mutex_);

  // Valid until the caller's part is done.
  Result<WritableFile*> Open() CKPT_EXCLUDES(mutex_);
  // Adds the checksums of what a part wrote into the file.
  void AddPieces(const std::vector<ChecksumPiece>& pieces) CKPT_EXCLUDES(mutex_);
  // A part is complete. The last part makes the file durable and closes it. If that fails, the file
  // is removed, but only if it was opened here: a later job may have a file of its own with this
  // name.
  Status PartDone() CKPT_EXCLUDES(mutex_);

  // The checksums of its blocks; the file is then durable. REQUIRES: all parts are done.
  Result<BlockChecksums> Finish() CKPT_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t size_bytes() CKPT_EXCLUDES(mutex_);

 private:
  // Also writes the literals, the first time.
  Status EnsureOpen() CKPT_REQUIRES(mutex_);
  Status SyncAndClose() CKPT_REQUIRES(mutex_);

  Storage& storage_;
  const Path path_;
  const bool is_open_elsewhere_;
  Mutex mutex_;
  std::uint64_t size_bytes_ CKPT_GUARDED_BY(mutex_);
  bool has_late_size_ CKPT_GUARDED_BY(mutex_) = false;
  std::shared_ptr<WritableFile> file_ CKPT_GUARDED_BY(mutex_);
  bool has_literals_ CKPT_GUARDED_BY(mutex_) = false;  // they are written
  std::vector<const WriteLiteral*> literals_ CKPT_GUARDED_BY(mutex_);
  std::vector<ChecksumPiece> pieces_ CKPT_GUARDED_BY(mutex_);
  std::size_t parts_left_ CKPT_GUARDED_BY(mutex_) = 0;
  bool is_durable_ CKPT_GUARDED_BY(mutex_) = false;
};

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_OUTPUT_FILE_H_
