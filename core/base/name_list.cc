#include "core/base/name_list.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace ckpt {

std::string NameSome(std::span<const std::string> names) {
  constexpr std::size_t kMost = 3;
  const std::size_t named = std::min(names.size(), kMost);
  std::string text = fmt::format("{}", fmt::join(names.first(named), ", "));
  if (named < names.size()) text += fmt::format(" and {} more", names.size() - named);
  return text;
}

}  // namespace ckpt
