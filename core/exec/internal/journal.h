// The journal of a conversion: it lists finished tensors, so that an interrupted run can resume.
#ifndef CKPT_CORE_EXEC_INTERNAL_JOURNAL_H_
#define CKPT_CORE_EXEC_INTERNAL_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/exec/block_checksums.h"
#include "core/io/storage.h"

namespace ckpt {

// A finished tensor: everything that resuming needs and does not compute again.
struct JournalRecord {
  std::uint32_t tensor = 0;  // position in the plan
  std::string digest;        // XXH3-128 of its bytes, hex
  std::uint64_t cast_overflows = 0;
  // The checksummed pieces of the files that hold it, by the file's position in the plan.
  std::vector<std::pair<std::uint32_t, ChecksumPiece>> pieces;
  // Its items, if the plan has late bytes.
  std::vector<WrittenItem> items;
};

// An append-only file. Layout, little endian:
//   header   "CKPTJNL4", 32 hex digits of the plan's hash
//   record   u32 body length, u32 CRC-32C of the body, body
//   body     u32 tensor, u64 overflows, 32 hex digits, u32 pieces, u32 items,
//            pieces × (u32 file, u64 offset, u32 length, u32 CRC-32C, u32 CRC-32),
//            items × (u64 offset, u64 size, u32 CRC-32 of the payload)
// A record that was cut off or damaged is ignored, together with everything after it.
// Thread-safety: Append may run concurrently.
class Journal {
 public:
  // Starts an empty journal. Errors: kIo, kNoSpace.
  static Result<std::unique_ptr<Journal>> Create(Storage& storage, const Path& path,
                                                 const std::string& plan_hash);
  // Opens an existing journal and continues after its last good record. `records` receives what it
  // contains. A missing journal, or the journal of another plan, is kNotFound.
  static Result<std::unique_ptr<Journal>> Resume(Storage& storage, const Path& path,
                                                 const std::string& plan_hash,
                                                 std::vector<JournalRecord>& records);

  // The hash of the plan that a journal belongs to; nothing if it is not there, or was interrupted
  // before it was begun.
  static Result<std::optional<std::string>> PlanHashOf(Storage& storage, const Path& path);

  Status Append(const JournalRecord& record) CKPT_EXCLUDES(mutex_);
  // Makes what was appended durable.
  Status Sync() CKPT_EXCLUDES(mutex_);

 private:
  Journal(std::unique_ptr<WritableFile> file, std::uint64_t end)
      : file_(std::move(file)), end_(end) {}

  Mutex mutex_;
  std::unique_ptr<WritableFile> file_ CKPT_GUARDED_BY(mutex_);
  std::uint64_t end_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_JOURNAL_H_
