// Reads a checkpoint of ours so that no byte is used before its manifest has proved it.
#ifndef CKPT_CORE_MANIFEST_CHECKED_STORAGE_H_
#define CKPT_CORE_MANIFEST_CHECKED_STORAGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/mutex.h"
#include "core/checkpoint/byte_owners.h"
#include "core/checkpoint/index.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "core/manifest/late_checks.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// Says which entry owns which bytes of a checkpoint's files. The index is set later, because its
// metadata are read through the same storage that asks for it. Thread-safe.
class LateIndex {
 public:
  // The index is not kept alive: a checkpoint's files may be read after the index is gone.
  void Set(std::weak_ptr<const CheckpointIndex> index) CKPT_EXCLUDES(mutex_);

  // The only tensor or object that has bytes in [offset, offset + length) of `file`. Empty if there
  // is none, if there are several, or if the index is not set yet or is gone.
  // Cost: the first call sorts all entries of the index.
  [[nodiscard]] std::string OwnerOf(std::string_view file, std::uint64_t offset_bytes,
                                    std::uint64_t size_bytes) CKPT_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::weak_ptr<const CheckpointIndex> index_ CKPT_GUARDED_BY(mutex_);
  std::optional<ByteOwners> owners_ CKPT_GUARDED_BY(mutex_);  // of `index_`
};

// Wraps `storage`. Files below `directory` that `manifest` names are compared with it while they
// are read: a reader gets bytes of a block only after the block was checked. Each block of an open
// file is checked once, by the first read that needs a part of it. A read of a whole block serves
// as the check itself: its bytes go straight to the reader's memory. What others need of a block
// that was read for a part of it is kept for them (SharedBlocks). While checks are `late`, parts of
// blocks that were not checked are read like whole blocks. A view checks its whole file. `storage`
// must outlive this. Thread-safe if `storage` is.
//
// Errors: those of `storage`; kTruncated and kSizeMismatch (from Open), kChecksum, described as by
// VerifyManifest. With an `index`, kChecksum names the tensor or object that owns the flipped bit,
// or all of the damaged block. It need not be the tensor that was asked for, since a block may hold
// many.
// Cost: one checksum over what is read, rounded up to blocks; memory for 32 blocks, and for one
// more per reading thread; none while checks are late.
[[nodiscard]] std::shared_ptr<Storage> MakeCheckedStorage(
    Storage& storage, const Path& directory, std::shared_ptr<const Manifest> manifest,
    std::shared_ptr<LateIndex> index = nullptr, std::shared_ptr<LateChecks> late = nullptr);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_CHECKED_STORAGE_H_
