// Storage on the real file system.
#ifndef CKPT_CORE_IO_POSIX_STORAGE_H_
#define CKPT_CORE_IO_POSIX_STORAGE_H_

#include "core/io/storage.h"

namespace ckpt {

// The process's file system. Stateless; one instance serves all. Its first use raises the process's
// limit of open files as far as the system lets it.
Storage& PosixStorage();

}  // namespace ckpt

#endif  // CKPT_CORE_IO_POSIX_STORAGE_H_
