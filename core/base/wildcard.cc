#include "core/base/wildcard.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ckpt {
namespace {

// The texts between the stars, one more than these.
std::vector<std::string> SplitAtStars(std::string_view pattern) {
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '*') {
      parts.emplace_back();
      continue;
    }
    const bool is_escape = pattern[i] == '\\' && i + 1 < pattern.size();
    if (is_escape) ++i;
    parts.back() += pattern[i];
  }
  return parts;
}

std::size_t CountStars(std::string_view pattern) { return SplitAtStars(pattern).size() - 1; }

// `text` with a `\` before each of these characters.
std::string Escape(std::string_view text, std::string_view characters) {
  std::string escaped;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// The patterns on both sides of each `=`.
Result<std::vector<std::string>> SplitAtEquals(std::string_view text) {
  std::vector<std::string> sides(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '=') {
      sides.emplace_back();
    } else if (text[i] != '\\') {
      sides.back() += text[i];
    } else {
      const std::string_view escaped = text.substr(++i, 1);
      if (escaped != "=" && escaped != "*" && escaped != "\\") {
        return Error(ErrorKind::kUsage, R"(a \ stands before =, * or \ alone)")
            .Actual(text)
            .Hint(R"(a \ of a name is \\)");
      }
      if (escaped != "=") sides.back() += '\\';
      sides.back() += escaped;
    }
  }
  return sides;
}

}  // namespace

bool HasStar(std::string_view pattern) { return CountStars(pattern) != 0; }

std::string LiteralPattern(std::string_view text) { return Escape(text, R"(*\)"); }

std::optional<std::string> Rewrite(std::string_view from, std::string_view to,
                                   std::string_view text) {
  const std::vector<std::string> old_parts = SplitAtStars(from);
  const std::vector<std::string> new_parts = SplitAtStars(to);
  if (!text.starts_with(old_parts.front())) return std::nullopt;
  text.remove_prefix(old_parts.front().size());
  std::string result = new_parts.front();
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

Result<RewriteRule> ParseRewrite(std::string_view text) {
  CKPT_ASSIGN_OR_RETURN(std::vector<std::string> sides, SplitAtEquals(text));
  if (sides.size() != 2) {
    return Error(ErrorKind::kUsage, sides.size() < 2 ? "no = divides OLD from NEW"
                                                     : "several = may divide OLD from NEW")
        .Expected("OLD=NEW")
        .Actual(text)
        .Hint(sides.size() < 2 ? "" : R"(a = of a name is \=)");
  }
  RewriteRule rule = {.from = std::move(sides[0]), .to = std::move(sides[1])};
  const std::size_t old_stars = CountStars(rule.from);
  const std::size_t new_stars = CountStars(rule.to);
  if (old_stars == new_stars) return rule;
  return Error(ErrorKind::kUsage, "OLD and NEW have different numbers of *")
      .Expected(fmt::format("{} in {}", old_stars, rule.to))
      .Actual(fmt::format("{}", new_stars));
}

std::string FormatRewrite(const RewriteRule& rule) {
  return fmt::format("{}={}", Escape(rule.from, "="), Escape(rule.to, "="));
}

}  // namespace ckpt
