// A file of the plan while its parts are written in any order.
#ifndef CKPT_CORE_EXEC_OUTPUT_FILE_H_
#define CKPT_CORE_EXEC_OUTPUT_FILE_H_

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

// Open from its first part to its last one, so that a plan may have more files than can be open at
// once. Thread-safe.
class OutputFile {
 public:
  // `path` exists and has `size_bytes`, unless SetSize says otherwise later. `file`: where it is open already; null: it is
  // opened for the first part.
  OutputFile(Storage& storage, Path path, std::uint64_t size_bytes,
             std::shared_ptr<WritableFile> file = nullptr)
      : storage_(storage),
        path_(std::move(path)),
        is_open_elsewhere_(file != nullptr),
        size_bytes_(size_bytes),
        file_(std::move(file)) {}

  // What the plan puts into the file, both told before anything is written. A literal is written
  // when the file is opened, and must outlive this.
  void AddLiteral(const WriteLiteral& literal) CKPT_EXCLUDES(mutex_);
  void AddPart() CKPT_EXCLUDES(mutex_);

  // The size, where only writing the parts shows it; told before the last one is done. Any further
  // bytes are of an interrupted run and are cut off.
  void SetSize(std::uint64_t size_bytes) CKPT_EXCLUDES(mutex_);

  // Valid until the caller's part is done.
  Result<WritableFile*> Open() CKPT_EXCLUDES(mutex_);
  // Checksums of what a part put into the file.
  void AddPieces(const std::vector<ChecksumPiece>& pieces) CKPT_EXCLUDES(mutex_);
  // A part is complete. The last one makes the file durable and closes it; where that fails, the
  // file is removed, if it was opened here: a later job may have given its name to a file of its own.
  Status PartDone() CKPT_EXCLUDES(mutex_);

  // The checksums of its blocks; the file is durable. REQUIRES: all parts are done.
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

#endif  // CKPT_CORE_EXEC_OUTPUT_FILE_H_
