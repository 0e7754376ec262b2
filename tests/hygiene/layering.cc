#include "tests/hygiene/layering.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

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

// Executables are not targets of the manifest: tools and tests may include all that is public.
bool MayIncludeEverything(std::string_view path) {
  return path.starts_with("tests/") || path.starts_with("tools/") || path.starts_with("docs/");
}

// A program is made of all the libraries below its folder.
bool IsProgram(std::string_view path) {
  return path.starts_with("tools/") && path.ends_with("/main.cc");
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

}  // namespace

std::string Manifest() {
  std::ifstream in(CKPT_BINARY_DIR "/layering.txt");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Layering ParseLayering(std::string_view manifest) {
  const std::vector<std::string> lines = Split(manifest, '\n');
  std::map<std::string, std::string> folder_of_alias;
  for (const std::string& line : lines) {
    const std::string folder = line.substr(0, line.find('|'));
    folder_of_alias[AliasOf(folder)] = folder;
  }
  Layering layering;
  for (const std::string& line : lines) {
    std::vector<std::string> fields = Split(line, '|');
    fields.resize(4);
    FolderEdges& edges = layering[fields[0]];
    for (const auto& [field, known] :
         {std::pair(&fields[1], &edges.of_headers), {&fields[2], &edges.of_sources}}) {
      for (const std::string& alias : Split(*field, ' ')) {
        const auto found = folder_of_alias.find(alias);
        if (found != folder_of_alias.end()) known->insert(found->second);
      }
    }
    for (const std::string& header : Split(fields[3], ' ')) {
      edges.headers.insert(fields[0] + "/" + header);
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
        wrong.push_back(where + "\"" + include.target + "\" is not a path from the root");
      } else if (from.empty() || to.empty()) {
        continue;
      } else if (from == to) {
        const FolderEdges& own = layering.at(from);
        if (own.headers.contains(file.path) && !own.headers.contains(include.target)) {
          wrong.push_back(where + "a public header includes the internal \"" + include.target +
                          "\"");
        }
      } else if (const FolderEdges& edges = layering.at(from); !edges.Has(to)) {
        wrong.push_back(where + "includes \"" + include.target + "\", but " + from +
                        " declares no edge to " + to);
      } else if (edges.headers.contains(file.path) && !edges.of_headers.contains(to)) {
        wrong.push_back(where + "a public header includes \"" + include.target + "\", but " + from +
                        " has " + to + " among its PRIVATE_DEPS, not its DEPS");
      } else if (!layering.at(to).headers.contains(include.target)) {
        wrong.push_back(where + "\"" + include.target + "\" is internal to " + to);
      }
    }
  }
  return wrong;
}

std::vector<std::string> UnusedEdges(const Layering& layering,
                                     const std::vector<SourceFile>& files) {
  Layering used;
  for (const SourceFile& file : files) {
    const std::string from = TargetFolder(layering, file.path);
    if (from.empty() || IsProgram(file.path)) continue;
    const bool is_public = layering.at(from).headers.contains(file.path);
    for (const Include& include : FindIncludes(file.text)) {
      if (!include.quoted) continue;
      const std::string to = TargetFolder(layering, include.target);
      (is_public ? used[from].of_headers : used[from].of_sources).insert(to);
    }
  }
  std::vector<std::string> unused;
  for (const auto& [from, edges] : layering) {
    for (const std::string& to : edges.of_headers) {
      if (!used[from].of_headers.contains(to)) {
        unused.push_back(from + " declares an edge to " + to + ", but no public header follows it");
      }
    }
    for (const std::string& to : edges.of_sources) {
      if (!used[from].of_sources.contains(to)) {
        unused.push_back(from + " declares an edge to " + to + ", but no source follows it");
      }
    }
  }
  return unused;
}

std::vector<std::string> HeadersOfOneFolder(const Layering& layering,
                                            const std::vector<SourceFile>& files) {
  std::map<std::string, const SourceFile*> by_path;
  std::vector<std::string> used;  // each once; grows while it is walked
  std::set<std::string> seen;
  const auto add = [&](const std::string& header) {
    if (seen.insert(header).second) used.push_back(header);
  };
  for (const SourceFile& file : files) {
    by_path[file.path] = &file;
    if (file.path.starts_with("tests/")) continue;
    const std::string from = TargetFolder(layering, file.path);
    for (const Include& include : FindIncludes(file.text)) {
      if (include.quoted && TargetFolder(layering, include.target) != from) add(include.target);
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    const auto header = by_path.find(used[i]);
    if (header == by_path.end()) continue;
    for (const Include& include : FindIncludes(header->second->text)) add(include.target);
  }
  std::vector<std::string> of_one;
  for (const auto& [folder, edges] : layering) {
    for (const std::string& header : edges.headers) {
      if (!seen.contains(header)) of_one.push_back(header + " is included by its own folder alone");
    }
  }
  return of_one;
}

}  // namespace ckpt::hygiene
