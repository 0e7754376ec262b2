#include "formats/hdf5/internal/parts.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include <fmt/format.h>

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

// Takes decimal digits from the front of `text`; nothing if there are fewer than five.
std::uint64_t TakeNumber(std::string_view& text) {
  constexpr std::size_t kFewestDigits = 5;
  constexpr std::size_t kMostDigits = 18;
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits < kFewestDigits || digits > kMostDigits) return 0;
  std::uint64_t number = 0;
  for (const char c : text.substr(0, digits)) number = number * 10 + static_cast<unsigned>(c - '0');
  text.remove_prefix(digits);
  return number;
}

bool HasNameOfPart(const Path& target, const std::string& name) {
  const std::string stem = target.stem().string() + "-";
  std::string_view rest = name;
  if (!rest.starts_with(stem)) return false;
  rest.remove_prefix(stem.size());
  const std::uint64_t number = TakeNumber(rest);
  constexpr std::string_view kOf = "-of-";
  if (!rest.starts_with(kOf)) return false;
  rest.remove_prefix(kOf.size());
  const std::uint64_t total = TakeNumber(rest);
  return number > 0 && number <= total &&
         (name == PartName(target, number, total, kFirstMark) ||
          name == PartName(target, number, total, kSecondMark));
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
