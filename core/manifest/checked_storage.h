// Reading a checkpoint of ours so that no byte is believed which its manifest does not prove.
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
#include "core/manifest/manifest.h"

namespace ckpt {

// Whose bytes lie where in the files of a checkpoint. It is told so late because the metadata that say it are read through
// the storage that wants to know. Thread-safe.
class LateIndex {
 public:
  // The index is not kept alive: the files of a checkpoint may be read for longer than it.
  void Set(std::weak_ptr<const CheckpointIndex> index) CKPT_EXCLUDES(mutex_);

  // The tensor or object that alone has bytes in [offset, offset + length) of `file`. Empty: none has, or several have,
  // or the index is not there yet, or any more.
  // Cost: the first call sorts everything that the index has.
  [[nodiscard]] std::string OwnerOf(std::string_view file, std::uint64_t offset_bytes,
                                    std::uint64_t size_bytes) CKPT_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::weak_ptr<const CheckpointIndex> index_ CKPT_GUARDED_BY(mutex_);
  std::optional<ByteOwners> owners_ CKPT_GUARDED_BY(mutex_);  // of `index_`
};

// `storage`, except that files below `directory` which `manifest` names are compared with it while they
// are read: nobody gets a byte of a block before the block was found to be as it was written. Each
// block of an open file is checked once, by the first read that takes a part of it, with that same
// read where it takes the whole; a view checks all of its file. Thread-safe if `storage` is, which must outlive this.
//
// Errors, beside those of `storage`: kTruncated, kSizeMismatch (of Open), kChecksum; each as VerifyManifest
//         describes it. With an `index`, kChecksum names the tensor or object that the flipped bit, or the whole of the damaged
//         block, belongs to: a block holds many, and it need not be the one that was asked for.
// Cost: one checksum of what is read, rounded to blocks; a block of memory for each thread that reads.
[[nodiscard]] std::shared_ptr<Storage> MakeCheckedStorage(
    Storage& storage, const Path& directory, std::shared_ptr<const Manifest> manifest,
    std::shared_ptr<LateIndex> index = nullptr);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_CHECKED_STORAGE_H_
