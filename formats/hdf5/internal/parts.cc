#include "formats/hdf5/internal/parts.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "core/base/text_number.h"
#include "formats/hdf5/internal/assemble.h"

namespace ckpt::hdf5 {
namespace {

// Two names for each part: a target and the one that replaces it must not share files.
constexpr std::string_view kFirstMark;
constexpr std::string_view kSecondMark = "-b";

std::string PartName(const Path& target, std::uint64_t number, std::uint64_t total,
                     std::string_view mark) {
  return fmt::format("{}-{:05}-of-{:05}{}{}", target.stem().string(), number, total, mark,
                     target.extension().string());
}

bool HasNameOfPart(const Path& target, const std::string& name) {
  std::string_view rest = name;
  if (!TakePrefix(target.stem().string() + "-", rest)) return false;
  const std::optional<std::uint64_t> number = TakeNumber<std::uint64_t>(rest);
  if (!number || !TakePrefix("-of-", rest)) return false;
  const std::optional<std::uint64_t> total = TakeNumber<std::uint64_t>(rest);
  return total && *number > 0 && *number <= *total &&
         (name == PartName(target, *number, *total, kFirstMark) ||
          name == PartName(target, *number, *total, kSecondMark));
}

}  // namespace

std::vector<std::string> PartNames(const std::string& target, std::uint64_t total,
                                   std::span<const std::string> in_use) {
  const auto names_with = [&](std::string_view mark) {
    std::vector<std::string> names;
    for (std::uint64_t p = 1; p <= total; ++p) names.push_back(PartName(target, p, total, mark));
    return names;
  };
  std::vector<std::string> names = names_with(kFirstMark);
  const bool is_free = std::ranges::find_first_of(names, in_use) == names.end();
  return is_free ? names : names_with(kSecondMark);
}

Result<bool> IsPart(Storage& storage, const Path& target, const Path& file) {
  if (!HasNameOfPart(target.filename(), file.filename().string())) return false;
  const auto holds_elements = [&]() -> Result<bool> {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(file));
    if (stat.type != FileType::kRegular) return false;
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> opened, storage.Open(file));
    CKPT_ASSIGN_OR_RETURN(const Assembled assembled,
                          Assemble(DataFiles(storage, file), std::move(opened)));
    return assembled.is_part;
  };
  Result<bool> is_part = holds_elements();
  if (is_part.ok() && *is_part) return true;
  if (!is_part.ok() && IsUnread(is_part.status().kind())) return is_part;
  return Error(ErrorKind::kAlreadyExists,
               "a file beside the target has the name of one of its parts, and is none")
      .File(file.string())
      .Hint("choose another name, or remove it yourself");
}

}  // namespace ckpt::hdf5
