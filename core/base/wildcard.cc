#include "core/base/wildcard.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

namespace ckpt {
namespace {

// The texts between the stars, one more than these.
std::vector<std::string_view> SplitAtStars(std::string_view pattern) {
  std::vector<std::string_view> parts;
  for (std::size_t star = pattern.find('*'); star != std::string_view::npos;
       star = pattern.find('*')) {
    parts.push_back(pattern.substr(0, star));
    pattern.remove_prefix(star + 1);
  }
  parts.push_back(pattern);
  return parts;
}

}  // namespace

Status CheckRewrite(std::string_view from, std::string_view to) {
  const auto old_stars = std::ranges::count(from, '*');
  const auto new_stars = std::ranges::count(to, '*');
  if (old_stars == new_stars) return OkStatus();
  return Error(ErrorKind::kUsage, "OLD and NEW have different numbers of *")
      .Expected(fmt::format("{} in {}", old_stars, to))
      .Actual(fmt::format("{}", new_stars));
}

std::optional<std::string> Rewrite(std::string_view from, std::string_view to,
                                   std::string_view text) {
  const std::vector<std::string_view> old_parts = SplitAtStars(from);
  const std::vector<std::string_view> new_parts = SplitAtStars(to);
  if (!text.starts_with(old_parts.front())) return std::nullopt;
  text.remove_prefix(old_parts.front().size());
  std::string result(new_parts.front());
  for (std::size_t p = 1; p < old_parts.size(); ++p) {
    // What follows the last star ends the text.
    const bool is_last = p + 1 == old_parts.size();
    const std::size_t size = old_parts[p].size();
    std::size_t at = text.find(old_parts[p]);
    if (is_last) at = text.ends_with(old_parts[p]) ? text.size() - size : std::string_view::npos;
    if (at == std::string_view::npos) return std::nullopt;
    result += text.substr(0, at);
    result += new_parts[p];
    text.remove_prefix(at + size);
  }
  return text.empty() ? std::optional(std::move(result)) : std::nullopt;
}

}  // namespace ckpt
