// Storage on the real file system.
#ifndef CKPT_CORE_IO_POSIX_STORAGE_H_
#define CKPT_CORE_IO_POSIX_STORAGE_H_

#include "core/io/storage.h"

namespace ckpt {

// The process's file system. Stateless; one instance serves all callers. Its first use raises the
// process's limit of open files as far as the system allows.
//
// Calls that a signal interrupts are repeated. Transfers are also repeated after EAGAIN and after a
// partial transfer. After 100 attempts in a row without progress the error is reported. A failed
// fsync is final.
Storage& PosixStorage();

}  // namespace ckpt

#endif  // CKPT_CORE_IO_POSIX_STORAGE_H_
