// Free and used space of the disk that holds a path.
#ifndef CKPT_CORE_IO_DISK_SPACE_H_
#define CKPT_CORE_IO_DISK_SPACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/io/path.h"

namespace ckpt {

// Bytes that this user may still write where `path` lies or will lie. Nothing where the file system
// does not say. A quota that the file system does not count may leave less.
[[nodiscard]] std::optional<std::uint64_t> FreeBytes(const Path& path);

// Bytes of disk that the files below `directory` use; 0 if it does not exist.
[[nodiscard]] std::uint64_t AllocatedBytes(const Path& directory);

// Errors: kNoSpace if `free_bytes` is less than the `needed_bytes` of `target`. The caller adds the
// hint.
Status CheckRoom(const Path& target, std::uint64_t needed_bytes, std::uint64_t free_bytes);

// The first hint after the disk was full: "make room (<what> takes 3.1 GiB in all)". 0 bytes:
// unknown.
[[nodiscard]] std::string MakeRoom(std::string_view what, std::uint64_t needed_bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_DISK_SPACE_H_
