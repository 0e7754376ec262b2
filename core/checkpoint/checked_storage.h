// Reading a checkpoint of ours so that no byte is believed which its manifest does not prove.
#ifndef CKPT_CORE_CHECKPOINT_CHECKED_STORAGE_H_
#define CKPT_CORE_CHECKPOINT_CHECKED_STORAGE_H_

#include <memory>

#include "core/checkpoint/manifest.h"
#include "core/io/path.h"
#include "core/io/storage.h"

namespace ckpt {

// `storage`, except that files below `directory` which `manifest` names are compared with it while they
// are read: nobody gets a byte of a block before the block was found to be as it was written. Each
// block of an open file is checked once, by the first read that takes a part of it, with that same
// read where it takes the whole; a view checks all of its file. Thread-safe if `storage` is, which must outlive this.
//
// Errors, beside those of `storage`: kTruncated, kSizeMismatch (of Open), kChecksum; each as VerifyManifest
//         describes it.
// Cost: one checksum of what is read, rounded to blocks; a block of memory for each thread that reads.
[[nodiscard]] std::shared_ptr<Storage> MakeCheckedStorage(Storage& storage, const Path& directory,
                                                          std::shared_ptr<const Manifest> manifest);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_CHECKED_STORAGE_H_
