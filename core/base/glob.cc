#include "core/base/glob.h"

#include <cstddef>

namespace ckpt {
namespace {

// The part of a pattern that matches one byte.
struct OneByte {
  std::size_t length = 0;  // of that part of the pattern
  bool matches = false;
};

// As the shell's and as fnmatch's.
bool IsNegation(char byte) { return byte == '!' || byte == '^'; }

// Position of the `]` that closes the class at `glob[0]`, or npos if no `]` closes it. The first
// byte of a class is never its end.
std::size_t EndOfClass(std::string_view glob) {
  std::size_t first = 1;
  if (first < glob.size() && IsNegation(glob[first])) ++first;
  return glob.find(']', first + 1);
}

// `members`: the text between the brackets, without `!` or `^`.
bool IsInClass(std::string_view members, char byte) {
  const auto number = static_cast<unsigned char>(byte);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto first = static_cast<unsigned char>(members[i]);
    auto last = first;
    if (i + 2 < members.size() && members[i + 1] == '-') {
      last = static_cast<unsigned char>(members[i + 2]);
      i += 2;
    }
    if (first <= number && number <= last) return true;
  }
  return false;
}

// REQUIRES: `glob` is not empty and does not begin with `*`.
OneByte MatchOne(std::string_view glob, char byte) {
  if (glob[0] == '?') return {1, true};
  if (glob[0] == '\\' && glob.size() > 1) return {2, glob[1] == byte};
  const std::size_t end = glob[0] == '[' ? EndOfClass(glob) : std::string_view::npos;
  if (end == std::string_view::npos) return {1, glob[0] == byte};
  const bool is_negated = IsNegation(glob[1]);
  const std::size_t first = is_negated ? 2 : 1;
  return {end + 1, IsInClass(glob.substr(first, end - first), byte) != is_negated};
}

}  // namespace

bool MatchesGlob(std::string_view glob, std::string_view text) {
  // Greedy, with one point to return to: the last `*`.
  std::size_t g = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      star_text = t;
      continue;
    }
    const OneByte one = g < glob.size() ? MatchOne(glob.substr(g), text[t]) : OneByte{};
    if (one.matches) {
      g += one.length;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace ckpt
