// Reading a checkpoint of ours so that no byte is believed which its manifest does not prove.
#ifndef CKPT_CORE_CHECKPOINT_CHECKED_STORAGE_H_
#define CKPT_CORE_CHECKPOINT_CHECKED_STORAGE_H_

#include <atomic>
#include <memory>

#include "core/checkpoint/index.h"
#include "core/checkpoint/manifest.h"
#include "core/io/path.h"
#include "core/io/storage.h"

namespace ckpt {

// What lies where in the files of a checkpoint. Null until its metadata are read, which is done through the storage that
// wants to know; then it outlives every read of the files.
using LateIndex = std::shared_ptr<std::atomic<const CheckpointIndex*>>;

// `storage`, except that files below `directory` which `manifest` names are compared with it while they
// are read: nobody gets a byte of a block before the block was found to be as it was written. Each
// block of an open file is checked once, by the first read that takes a part of it, with that same
// read where it takes the whole; a view checks all of its file. Thread-safe if `storage` is, which must outlive this.
//
// Errors, beside those of `storage`: kTruncated, kSizeMismatch (of Open), kChecksum; each as VerifyManifest
//         describes it. With an `index`, kChecksum names the tensor or object that the flipped bit, or the whole of the damaged
//         block, belongs to: a block holds many, and it need not be the one that was asked for.
// Cost: one checksum of what is read, rounded to blocks; a block of memory for each thread that reads.
[[nodiscard]] std::shared_ptr<Storage> MakeCheckedStorage(Storage& storage, const Path& directory,
                                                          std::shared_ptr<const Manifest> manifest,
                                                          LateIndex index = nullptr);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_CHECKED_STORAGE_H_
