// Detects the text that Git LFS leaves in place of a file that it did not fetch.
#ifndef CKPT_CORE_IO_GIT_LFS_POINTER_H_
#define CKPT_CORE_IO_GIT_LFS_POINTER_H_

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// Errors: kIncomplete (the file is such a pointer; the error says how large the real file is), kIo.
Status RefuseGitLfsPointer(const ReadableFile& file);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_GIT_LFS_POINTER_H_
