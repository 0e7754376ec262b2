#include "core/io/git_lfs_pointer.h"

#include <string_view>

#include <fmt/format.h>

#include "core/base/bytes.h"

namespace ckpt {
namespace {

// https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md: "key value" lines, `version` first,
// less than 1024 bytes.
constexpr std::string_view kFirstLine = "version https://git-lfs.github.com/spec/";
constexpr std::string_view kSizeKey = "\nsize ";
constexpr std::uint64_t kMaxPointerBytes = 1024;

}  // namespace

Status RefuseGitLfsPointer(const ReadableFile& file) {
  if (file.size_bytes() < kFirstLine.size() || file.size_bytes() >= kMaxPointerBytes) {
    return OkStatus();
  }
  Bytes bytes(file.size_bytes());
  CKPT_RETURN_IF_ERROR(file.ReadAt(0, bytes));
  const std::string_view text = AsText(bytes);
  if (!text.starts_with(kFirstLine)) return OkStatus();
  Status pointer = Error(ErrorKind::kIncomplete, "a Git LFS pointer, not the file itself")
                       .File(file.name())
                       .Actual(fmt::format("a text of {} bytes", text.size()))
                       .Hint("run `git lfs pull` to fetch the files themselves");
  if (const std::size_t at = text.find(kSizeKey); at != std::string_view::npos) {
    const std::size_t begin = at + kSizeKey.size();
    const std::string_view size = text.substr(begin, text.find('\n', begin) - begin);
    pointer = std::move(pointer).Expected(fmt::format("a file of {} bytes", size));
  }
  return pointer;
}

}  // namespace ckpt
