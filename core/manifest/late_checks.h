// LateChecks: readers that share blocks read no byte twice, and all is checked in the end.
#ifndef CKPT_CORE_MANIFEST_LATE_CHECKS_H_
#define CKPT_CORE_MANIFEST_LATE_CHECKS_H_

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/manifest/block_part.h"

namespace ckpt {

// A file whose blocks have checksums.
class FileOfBlocks {
 public:
  virtual ~FileOfBlocks() = default;
  [[nodiscard]] virtual std::uint64_t id() const = 0;      // unique in this process
  [[nodiscard]] virtual std::uint32_t number() const = 0;  // position in the manifest's files
  [[nodiscard]] virtual std::uint64_t block_bytes(std::uint64_t block) const = 0;
  [[nodiscard]] virtual std::uint32_t block_crc32c(std::uint64_t block) const = 0;  // as written
  [[nodiscard]] virtual bool IsChecked(std::uint64_t block) const = 0;
  // Reads bytes of a block without a check.
  virtual Status ReadUnchecked(std::uint64_t block, std::uint64_t skipped_bytes,
                               MutableByteSpan out) const = 0;
  // Whether a block that was read has its checksum. Errors: kChecksum.
  virtual Status Compare(std::uint64_t block, std::uint32_t crc32c) const = 0;
};

// A checked storage reads all of a block before it gives a part of it. Ranks of a run that load a
// state divide blocks among them, and at different times: nobody could keep them all in memory.
// Between Begin and the end, a reader is given its part at once, and only the part's checksum is
// kept; the checksum of the whole is computed from those of its parts.
//
// So what was read meanwhile may be damaged, and so may what was understood of it. It must not be
// used before all was compared without damage; where reading failed, damage explains it.
//
// When all have ended their reading, each reader takes parts (TakeParts) and sends those of a block
// to one of them, which looks for damage (FindDamage). Each ends when all know what was found.
// Readers of one process share this; those of several processes each have their own of the same
// checkpoint. Thread-safe.
class LateChecks {
 public:
  LateChecks();
  LateChecks(const LateChecks&) = delete;
  LateChecks& operator=(const LateChecks&) = delete;
  ~LateChecks();

  // Every reader calls it, and End at last.
  void Begin() CKPT_EXCLUDES(mutex_);
  void End() CKPT_EXCLUDES(mutex_);

  // What the readers of this process have read since Begin of blocks that they read in parts. Each
  // part is given to one caller. REQUIRES: all that began in this process have ended their reading.
  [[nodiscard]] std::vector<BlockPart> TakeParts() CKPT_EXCLUDES(mutex_);
  // Compares the blocks of `parts`, which are all that anybody has read of them, in any order.
  // Reads what is missing. Returns a block that is not as it was written, as the part that is all
  // of it and has the checksum that was found; nothing if there is none. Errors: those of reading.
  // REQUIRES: the caller has begun.
  Result<std::optional<BlockPart>> FindDamage(std::vector<BlockPart> parts) CKPT_EXCLUDES(mutex_);
  // What is wrong with a block that FindDamage returned, here or in another process. It is read
  // again, to find the bit. Errors: kChecksum; those of reading.
  Status Describe(const BlockPart& damaged) CKPT_EXCLUDES(mutex_);

  // For the checked storage: whether somebody has begun.
  [[nodiscard]] bool are_late() const { return callers_ != 0; }
  // For the checked storage: a part was read, and has this checksum. Errors: kChecksum.
  Status Add(std::shared_ptr<const FileOfBlocks> file, std::uint64_t block,
             std::uint64_t skipped_bytes, ByteSpan part, std::uint32_t crc32c)
      CKPT_EXCLUDES(mutex_);
  // For the checked storage: how to open a file of which others have read parts.
  using OpenFile = std::function<Result<std::shared_ptr<const FileOfBlocks>>(std::uint32_t number)>;
  void set_open_file(OpenFile open_file) { open_file_ = std::move(open_file); }

 private:
  struct Name {
    std::uint64_t file = 0;
    std::uint64_t block = 0;
    friend auto operator<=>(const Name&, const Name&) = default;
  };
  struct Pending;

  Result<std::shared_ptr<const FileOfBlocks>> FileOf(std::uint32_t number) CKPT_EXCLUDES(mutex_);

  OpenFile open_file_;
  std::atomic<int> callers_ = 0;  // that have begun and not ended
  Mutex mutex_;
  // Blocks of which parts were read. Those that are complete are kept, because another process may
  // have read some of their bytes, too, and nothing else of them.
  std::map<Name, std::unique_ptr<Pending>> pending_ CKPT_GUARDED_BY(mutex_);
  // By number; those that were read and those that were opened to compare them.
  std::map<std::uint32_t, std::shared_ptr<const FileOfBlocks>> files_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_LATE_CHECKS_H_
