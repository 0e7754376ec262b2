// Room on the disk below a path.
#ifndef CKPT_CORE_IO_DISK_SPACE_H_
#define CKPT_CORE_IO_DISK_SPACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/io/path.h"

namespace ckpt {

// Bytes that this user may still write where `path` lies or will lie. Nothing where the file system does not say. A quota
// that it does not count in may leave less.
[[nodiscard]] std::optional<std::uint64_t> FreeBytes(const Path& path);

// Bytes of the disk that the files below `directory` take; 0 if it is not there.
[[nodiscard]] std::uint64_t AllocatedBytes(const Path& directory);

// Errors: kNoSpace where `free_bytes` are fewer than the `needed_bytes` of `target`; the caller adds what can be done.
Status CheckRoom(const Path& target, std::uint64_t needed_bytes, std::uint64_t free_bytes);

// What to do first where the disk was full: "make room (<what> takes 3.1 GiB in all)"; 0: how much is not known.
[[nodiscard]] std::string MakeRoom(std::string_view what, std::uint64_t needed_bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_DISK_SPACE_H_
