// Directories whose names survive a power failure.
#ifndef CKPT_CORE_IO_DURABLE_DIRECTORIES_H_
#define CKPT_CORE_IO_DURABLE_DIRECTORIES_H_

#include "core/base/status.h"
#include "core/io/path.h"
#include "core/io/storage.h"

namespace ckpt {

// Creates the directory and its parents, the name of each durable before the next one is made: a power failure must not take
// what is written below away with a directory above it. One that exists is fine. Errors: those of the storage.
Status MakeDurableDirectories(Storage& storage, const Path& directory);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_DURABLE_DIRECTORIES_H_
