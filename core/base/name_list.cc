#include "core/base/name_list.h"

#include <algorithm>

#include <fmt/format.h>

namespace ckpt {

std::string NameSome(std::span<const std::string> names) { return NameSome(names, names.size()); }

std::string NameSome(std::span<const std::string> names, std::size_t count) {
  const std::size_t named = std::min(names.size(), kMostNamed);
  std::string text = fmt::format("{}", fmt::join(names.first(named), ", "));
  if (named < count) text += fmt::format(" and {} more", count - named);
  return text;
}

}  // namespace ckpt
