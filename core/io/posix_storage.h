// Storage on the real file system.
#ifndef CKPT_CORE_IO_POSIX_STORAGE_H_
#define CKPT_CORE_IO_POSIX_STORAGE_H_

#include "core/io/storage.h"

namespace ckpt {

// The process's file system. Stateless; one instance serves all. Its first use raises the process's
// limit of open files as far as the system lets it.
//
// Calls that a signal interrupts are repeated, and transfers also after EAGAIN and where they move
// only a part; after 100 attempts in a row without progress the error is reported. A failed fsync is
// final.
Storage& PosixStorage();

}  // namespace ckpt

#endif  // CKPT_CORE_IO_POSIX_STORAGE_H_
