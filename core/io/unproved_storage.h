// Reads bytes whose checksums are known to be wrong, to say what else is wrong with them.
#ifndef CKPT_CORE_IO_UNPROVED_STORAGE_H_
#define CKPT_CORE_IO_UNPROVED_STORAGE_H_

#include <memory>

#include "core/io/storage.h"

namespace ckpt {

// Forwards to `storage`, which must outlive this and its files. Every file says that it is checked,
// so that readers compare nothing with checksums that lie beside the bytes. Only for readers that
// report the damage themselves: a value read so proves nothing.
[[nodiscard]] std::unique_ptr<Storage> MakeUnprovedStorage(Storage& storage);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_UNPROVED_STORAGE_H_
