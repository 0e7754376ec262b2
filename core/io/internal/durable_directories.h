// Directories whose names survive a power failure.
#ifndef CKPT_CORE_IO_INTERNAL_DURABLE_DIRECTORIES_H_
#define CKPT_CORE_IO_INTERNAL_DURABLE_DIRECTORIES_H_

#include "core/base/status.h"
#include "core/io/path.h"
#include "core/io/storage.h"

namespace ckpt {

// Creates the directory and its parents. Each name is made durable before the next directory is
// created: a power failure must not lose the files below because a directory above them was lost.
// An existing directory is fine. Errors: those of the storage.
Status MakeDurableDirectories(Storage& storage, const Path& directory);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_INTERNAL_DURABLE_DIRECTORIES_H_
