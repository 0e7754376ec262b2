#include "tests/hygiene/layering.h"

#include <algorithm>
#include <sstream>

namespace ckpt::hygiene {
namespace {

std::string AliasOf(std::string folder) {
  std::ranges::replace(folder, '/', '_');
  std::ranges::replace(folder, '-', '_');
  return "ckpt::" + folder;
}

std::string FolderOf(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(path.substr(0, slash == std::string_view::npos ? 0 : slash));
}

// The nearest folder above `path` that is a target of its own; folder/internal belongs to folder.
std::string TargetFolder(const Layering& layering, std::string_view path) {
  for (std::string folder = FolderOf(path); !folder.empty(); folder = FolderOf(folder)) {
    if (layering.contains(folder)) return folder;
  }
  return {};
}

void AddInherited(Layering* layering) {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto& [folder, reached] : *layering) {
      const std::set<std::string> before = reached;
      for (const std::string& next : before) {
        const std::set<std::string>& more = layering->at(next);
        reached.insert(more.begin(), more.end());
      }
      changed |= reached.size() != before.size();
    }
  }
}

// Executables are no targets of the manifest: tools and tests may include all that is public.
bool MayIncludeEverything(std::string_view path) {
  return path.starts_with("tests/") || path.starts_with("tools/") || path.starts_with("docs/");
}

// A program is made of all the libraries below its folder.
bool IsProgram(std::string_view path) {
  return path.starts_with("tools/") && path.ends_with("/main.cc");
}

}  // namespace

Layering ParseLayering(std::string_view manifest, bool direct) {
  std::map<std::string, std::vector<std::string>> declared;  // folder -> aliases
  std::istringstream lines{std::string(manifest)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::vector<std::string>& aliases = declared[line.substr(0, colon)];
    std::istringstream words(line.substr(colon + 1));
    for (std::string word; words >> word;) aliases.push_back(word);
  }
  std::map<std::string, std::string> folder_of_alias;
  for (const auto& [folder, aliases] : declared) folder_of_alias[AliasOf(folder)] = folder;

  Layering layering;
  Layering own;  // private edges
  for (const auto& [folder, aliases] : declared) {
    layering[folder];
    for (std::string_view alias : aliases) {
      const bool is_private = alias.starts_with('-');
      if (is_private) alias.remove_prefix(1);
      const auto found = folder_of_alias.find(std::string(alias));
      if (found == folder_of_alias.end()) continue;
      (is_private ? own : layering)[folder].insert(found->second);
    }
  }
  if (!direct) AddInherited(&layering);
  // What a private edge leads to is for its folder alone.
  const Layering inherited = layering;
  for (const auto& [folder, targets] : own) {
    for (const std::string& target : targets) {
      layering[folder].insert(target);
      if (direct) continue;
      const std::set<std::string>& more = inherited.at(target);
      layering[folder].insert(more.begin(), more.end());
    }
  }
  return layering;
}

std::vector<std::string> WrongIncludes(const Layering& layering,
                                       const std::vector<SourceFile>& files) {
  std::vector<std::string> wrong;
  for (const SourceFile& file : files) {
    const std::string from =
        IsProgram(file.path) ? std::string() : TargetFolder(layering, file.path);
    if (from.empty() && !MayIncludeEverything(file.path)) {
      wrong.push_back(file.path + ": lies in a folder without a target");
      continue;
    }
    for (const Include& include : FindIncludes(file.text)) {
      if (!include.quoted) continue;
      const std::string where = file.path + ":" + std::to_string(include.line) + ": ";
      const std::string to = TargetFolder(layering, include.target);
      if (include.target.starts_with("tests/") && !file.path.starts_with("tests/")) {
        wrong.push_back(where + "nobody but tests includes tests");
      } else if (to.empty() && !MayIncludeEverything(include.target)) {
        wrong.push_back(where + "\"" + include.target + "\" is no path from the root");
      } else if (!from.empty() && !to.empty() && from != to && !layering.at(from).contains(to)) {
        wrong.push_back(where + "includes \"" + include.target + "\", but " + from +
                        " declares no edge to " + to);
      }
    }
  }
  return wrong;
}

}  // namespace ckpt::hygiene
