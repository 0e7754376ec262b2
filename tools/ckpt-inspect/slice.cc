#include "tools/ckpt-inspect/slice.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/text_number.h"

namespace ckpt::inspect {
namespace {

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(Trimmed(text.substr(0, at)));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Status NotASlice(std::string_view text) {
  return Error(ErrorKind::kUsage, "not a slice")
      .Expected("one index or start:end per dim, as in 0:2,3")
      .Actual(Quote(text));
}

Result<std::int64_t> ParseIndex(std::string_view text) {
  const std::optional<std::int64_t> value = ParseNumber<std::int64_t>(text);
  if (!value) return NotASlice(text);
  return *value;
}

// The end of a range that `text` names: counted from the dim's end if negative.
Result<std::int64_t> ParseBound(std::string_view text, std::int64_t size, std::int64_t if_empty) {
  if (text.empty()) return if_empty;
  CKPT_ASSIGN_OR_RETURN(const std::int64_t value, ParseIndex(text));
  // The sum cannot wrap, because size is not negative.
  return value < 0 ? value + size : value;
}

Status AddRange(const std::vector<std::string_view>& ends, std::size_t dim, DimsView shape,
                Slice& slice) {
  const std::int64_t size = shape[dim];
  CKPT_ASSIGN_OR_RETURN(const std::int64_t from, ParseBound(ends[0], size, 0));
  CKPT_ASSIGN_OR_RETURN(const std::int64_t to, ParseBound(ends[1], size, size));
  const std::int64_t begin = std::clamp<std::int64_t>(from, 0, size);
  const std::int64_t end = std::clamp<std::int64_t>(to, 0, size);
  const std::int64_t length = std::max<std::int64_t>(0, end - begin);
  // 2:2 and 4:2 are empty, as in numpy. What begins past the end is probably mistyped.
  const bool is_outside = from < to || from >= size || to < 0;
  if (length == 0 && size > 0 && is_outside) {
    return Error(ErrorKind::kUsage,
                 fmt::format("range outside dim {} of {}", dim, FormatDims(shape)))
        .Expected(fmt::format("a part of 0:{}", size))
        .Actual(fmt::format("{}:{}", ends[0], ends[1]));
  }
  slice.box.offsets.push_back(begin);
  slice.box.sizes.push_back(length);
  slice.dims.push_back(length);
  return OkStatus();
}

Status AddIndex(std::string_view text, std::size_t dim, DimsView shape, Slice& slice) {
  const std::int64_t size = shape[dim];
  CKPT_ASSIGN_OR_RETURN(const std::int64_t value, ParseIndex(text));
  const std::int64_t index = value < 0 ? value + size : value;
  if (index < 0 || index >= size) {
    return Error(ErrorKind::kUsage,
                 fmt::format("index outside dim {} of {}", dim, FormatDims(shape)))
        .Expected(fmt::format("{} to {}", -size, size - 1))
        .Actual(std::to_string(value));
  }
  slice.box.offsets.push_back(index);
  slice.box.sizes.push_back(1);
  return OkStatus();
}

}  // namespace

Result<Slice> ParseSlice(std::string_view text, DimsView shape) {
  std::vector<std::string_view> entries;
  if (!Trimmed(text).empty()) entries = Split(text, ',');
  if (entries.size() > shape.size()) {
    return Error(ErrorKind::kUsage, "more indices than dims of " + FormatDims(shape))
        .Expected(fmt::format("at most {}", shape.size()))
        .Actual(Quote(text));
  }
  Slice slice;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::vector<std::string_view> ends =
        dim < entries.size() ? Split(entries[dim], ':') : std::vector<std::string_view>(2);
    if (ends.size() > 2) return NotASlice(text).Hint("steps are not supported");
    CKPT_RETURN_IF_ERROR(ends.size() == 1 ? AddIndex(ends[0], dim, shape, slice)
                                          : AddRange(ends, dim, shape, slice));
  }
  return slice;
}

}  // namespace ckpt::inspect
