// Storage in memory, for tests: it follows the rules of the real one without a disk.
#ifndef CKPT_CORE_IO_MEMORY_STORAGE_H_
#define CKPT_CORE_IO_MEMORY_STORAGE_H_

#include <memory>

#include "core/io/storage.h"

namespace ckpt {

// An empty file system with a root directory "/". Paths are taken as absolute. Thread-safe.
std::unique_ptr<Storage> MakeMemoryStorage();

}  // namespace ckpt

#endif  // CKPT_CORE_IO_MEMORY_STORAGE_H_
