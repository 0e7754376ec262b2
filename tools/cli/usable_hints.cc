#include "tools/cli/usable_hints.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace ckpt::cli {
namespace {

// A hint that names another tool is about that tool's options from there on.
bool IsUsable(std::string_view hint, const CLI::App& verb) {
  constexpr std::string_view kTools = "ckpt-";
  constexpr std::string_view kDashes = "--";
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789-";
  for (std::size_t begin = hint.find(kDashes); begin != std::string_view::npos;) {
    const std::size_t end = std::min(hint.find_first_not_of(kOfNames, begin), hint.size());
    const std::string name(hint.substr(begin, end - begin));
    if (hint.substr(0, begin).find(kTools) != std::string_view::npos) return true;
    if (name != kDashes && verb.get_option_no_throw(name) == nullptr) return false;
    begin = hint.find(kDashes, end);
  }
  return true;
}

}  // namespace

Status WithUsableHints(const Status& status, const CLI::App& verb) {
  std::vector<Problem> problems = status.problems();
  for (Problem& problem : problems) {
    if (!IsUsable(problem.hint, verb)) problem.hint.clear();
  }
  return Status(std::move(problems));
}

}  // namespace ckpt::cli
