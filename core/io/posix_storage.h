// Storage on the real file system.
#ifndef CKPT_CORE_IO_POSIX_STORAGE_H_
#define CKPT_CORE_IO_POSIX_STORAGE_H_

#include "core/io/storage.h"

namespace ckpt {

// The process's file system. Stateless; one instance serves all.
Storage& PosixStorage();

}  // namespace ckpt

#endif  // CKPT_CORE_IO_POSIX_STORAGE_H_
