// LateChecks: readers that share blocks read no byte twice, and all is checked when they have ended.
#ifndef CKPT_CORE_MANIFEST_LATE_CHECKS_H_
#define CKPT_CORE_MANIFEST_LATE_CHECKS_H_

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "core/base/bytes.h"
#include "core/base/mutex.h"
#include "core/base/status.h"

namespace ckpt {

// A file whose blocks have checksums.
class FileOfBlocks {
 public:
  virtual ~FileOfBlocks() = default;
  [[nodiscard]] virtual std::uint64_t id() const = 0;  // unique in this process
  [[nodiscard]] virtual std::uint64_t block_bytes(std::uint64_t block) const = 0;
  [[nodiscard]] virtual bool IsChecked(std::uint64_t block) const = 0;
  // Reads bytes of a block without a check.
  virtual Status ReadUnchecked(std::uint64_t block, std::uint64_t skipped_bytes,
                               MutableByteSpan out) const = 0;
  // Whether a block that was read has its checksum. Errors: kChecksum.
  virtual Status Compare(std::uint64_t block, std::uint32_t crc32c) const = 0;
};

// A checked storage reads all of a block before it gives a part of it. Ranks of a run that load a
// state divide blocks among them, and at different times: nobody could keep them all in memory.
// Between Begin and Finish, a reader is given its part at once, and only the part's checksum is
// kept; the checksum of the whole is computed from those of its parts.
//
// So what was read meanwhile may be damaged, and so may what was understood of it. It must not be
// used before Finish was OK; where reading failed, the failure of Finish explains it. Thread-safe.
class LateChecks {
 public:
  LateChecks();
  LateChecks(const LateChecks&) = delete;
  LateChecks& operator=(const LateChecks&) = delete;
  ~LateChecks();

  // Every reader, or every rank, calls both, in turn.
  void Begin() CKPT_EXCLUDES(mutex_);
  // Reads what nobody has read of the blocks, and compares them. REQUIRES: all that began have
  // ended their reading. Errors: those of reading; kChecksum, described as by a checked storage. All
  // callers get the same one.
  Status Finish() CKPT_EXCLUDES(mutex_);

  // For the checked storage: whether somebody has begun.
  [[nodiscard]] bool are_late() const { return callers_ != 0; }
  // For the checked storage: a part was read, and has this checksum. Errors: kChecksum.
  Status Add(std::shared_ptr<const FileOfBlocks> file, std::uint64_t block,
             std::uint64_t skipped_bytes, ByteSpan part, std::uint32_t crc32c)
      CKPT_EXCLUDES(mutex_);

 private:
  struct Name {
    std::uint64_t file = 0;
    std::uint64_t block = 0;
    friend auto operator<=>(const Name&, const Name&) = default;
  };
  struct Pending;

  // Reads the gaps of a block and compares it.
  static Status Complete(std::uint64_t block, Pending& pending);

  std::atomic<int> callers_ = 0;  // that have begun and not finished
  Mutex mutex_;
  std::map<Name, std::unique_ptr<Pending>> pending_ CKPT_GUARDED_BY(mutex_);
  Status failure_ CKPT_GUARDED_BY(mutex_);  // the first one
};

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_LATE_CHECKS_H_
