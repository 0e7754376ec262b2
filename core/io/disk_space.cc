#include "core/io/disk_space.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/units.h"
#include "core/io/posix_storage.h"
#include "core/io/storage.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kStatBlockBytes = 512;  // the unit of st_blocks on every file system

}  // namespace

std::optional<std::uint64_t> FreeBytes(const Path& path) {
  struct statvfs room = {};
  Path existing = path.empty() ? Path(".") : path;
  while (::statvfs(existing.c_str(), &room) != 0) {
    if (errno != ENOENT || existing == existing.root_path() || existing == Path(".")) {
      return std::nullopt;
    }
    existing = existing.has_parent_path() ? existing.parent_path() : Path(".");
  }
  if (room.f_blocks == 0) return std::nullopt;
  return std::uint64_t{room.f_bavail} * room.f_frsize;
}

std::uint64_t AllocatedBytes(const Path& directory) {
  const Result<std::vector<std::string>> names = ListRecursively(PosixStorage(), directory);
  if (!names.ok()) return 0;
  std::uint64_t bytes = 0;
  for (const std::string& name : *names) {
    struct stat info = {};
    if (::stat((directory / name).c_str(), &info) != 0) continue;
    bytes += static_cast<std::uint64_t>(info.st_blocks) * kStatBlockBytes;
  }
  return bytes;
}

Status CheckRoom(const Path& target, std::uint64_t needed_bytes, std::uint64_t free_bytes) {
  if (needed_bytes <= free_bytes) return OkStatus();
  return Error(ErrorKind::kNoSpace, "the disk cannot hold the target")
      .File(target.string())
      .Expected(fmt::format("{} ({} bytes) free", FormatByteSize(needed_bytes), needed_bytes))
      .Actual(fmt::format("{} ({} bytes)", FormatByteSize(free_bytes), free_bytes));
}

std::string MakeRoom(std::string_view what, std::uint64_t needed_bytes) {
  if (needed_bytes == 0) return "make room";
  return fmt::format("make room ({} takes {} in all)", what, FormatByteSize(needed_bytes));
}

}  // namespace ckpt
