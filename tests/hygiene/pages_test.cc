// What README.md and docs/ say about this tree is true: files, and edges between folders.
#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/hygiene/layering.h"
#include "tests/hygiene/source_file.h"

namespace ckpt::hygiene {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// All but dated measurements and superseded decisions, which keep the names of their time.
std::vector<SourceFile> LivePages() {
  std::vector<SourceFile> pages = ReadFiles({"docs"}, {".md"});
  std::erase_if(pages, [](const SourceFile& page) {
    const bool is_superseded =
        page.path.starts_with("docs/adr/") && page.text.find("Superseded by") != std::string::npos;
    return is_superseded || page.path.starts_with("docs/bench/");
  });
  pages.push_back(ReadFile("README.md"));
  return pages;
}

// "page:line: there is no path", one for each path of this tree between back-ticks. What stands
// behind a path, as the arguments of a command, does not count; nor do patterns and placeholders.
std::vector<std::string> MissingPaths(const std::vector<SourceFile>& pages) {
  static const std::regex kPath(
      R"re(`((core|formats|converters|trainer|tools|tests|docs)/[\w./-]+)([ :][^`]*)?`)re");
  std::vector<std::string> missing;
  for (const SourceFile& page : pages) {
    std::istringstream lines(page.text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      for (std::sregex_iterator at(line.begin(), line.end(), kPath), end; at != end; ++at) {
        const std::string path = at->str(1);
        if (boost::filesystem::exists(CKPT_SOURCE_DIR "/" + path)) continue;
        missing.push_back(page.path + ":" + std::to_string(number) + ": there is no " + path);
      }
    }
  }
  return missing;
}

// A row of the table "Folders" in docs/architecture.md.
struct FolderRow {
  std::vector<std::string> folders;
  std::vector<std::string> may_include;
};

// What stands between separators, without the spaces and back-ticks around it.
std::vector<std::string> Trimmed(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) {
    const std::size_t begin = part.find_first_not_of(" `");
    if (begin == std::string::npos) continue;
    parts.push_back(part.substr(begin, part.find_last_not_of(" `") + 1 - begin));
  }
  return parts;
}

std::vector<FolderRow> FolderRows(const std::string& page) {
  static const std::regex kRow("\\| (`[^|]*) \\|[^|]*\\|([^|]*)\\|");
  std::vector<FolderRow> rows;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    std::smatch cells;
    if (!std::regex_match(line, cells, kRow)) continue;
    rows.push_back({.folders = Trimmed(cells[1], ','), .may_include = Trimmed(cells[2], ',')});
    std::erase(rows.back().may_include, "–");  // none
  }
  return rows;
}

// The folders that a word of the column means: a folder by its path, or by what follows `top`, the
// top folder of the row; else all folders of a top folder.
std::set<std::string> Meant(const Layering& layering, const std::string& top,
                            const std::string& word) {
  for (const std::string& folder : {word, top + "/" + word}) {
    if (layering.contains(folder)) return {folder};
  }
  const std::string above = word == "every format" ? "formats/" : word + "/";
  std::set<std::string> all;
  for (const auto& [folder, edges] : layering) {
    if (folder.starts_with(above)) all.insert(folder);
  }
  return all;
}

// What the rows say of edges that the build does not, and the other way round. Folders of one row
// are taken together.
std::vector<std::string> WrongRows(const Layering& layering, const std::vector<FolderRow>& rows) {
  std::vector<std::string> wrong;
  std::set<std::string> listed;
  for (const FolderRow& row : rows) {
    const std::string& name = row.folders.front();
    std::set<std::string> edges;
    for (const std::string& folder : row.folders) {
      if (!listed.insert(folder).second) wrong.push_back(folder + ": has two rows");
      const auto found = layering.find(folder);
      if (found == layering.end()) {
        wrong.push_back(folder + ": is no folder with a target");
        continue;
      }
      edges.insert(found->second.of_headers.begin(), found->second.of_headers.end());
      edges.insert(found->second.of_sources.begin(), found->second.of_sources.end());
    }
    for (const std::string& folder : row.folders) edges.erase(folder);
    std::set<std::string> allowed;
    for (const std::string& word : row.may_include) {
      const std::set<std::string> meant = Meant(layering, name.substr(0, name.find('/')), word);
      const auto is_edge = [&](const std::string& folder) { return edges.contains(folder); };
      if (std::ranges::none_of(meant, is_edge)) {
        wrong.push_back(name + ": says " + word + ", which it does not depend on");
      }
      allowed.insert(meant.begin(), meant.end());
    }
    for (const std::string& folder : edges) {
      if (!allowed.contains(folder)) wrong.push_back(name + ": does not say " + folder);
    }
  }
  for (const auto& [folder, edges] : layering) {
    if (!listed.contains(folder)) wrong.push_back(folder + ": has no row");
  }
  return wrong;
}

TEST(PagesTest, PathsOfThisTreeExist) {
  const std::vector<SourceFile> pages = LivePages();
  EXPECT_GE(pages.size(), 30U);
  EXPECT_THAT(MissingPaths(pages), IsEmpty());
}

TEST(PagesTest, CatchesAPathThatDoesNotExist) {
  const std::string text =
      "Read `core/base/no_such.h`,\n`core/base/status.h:7`, `core/base/*.cc`, `formats/<x>/a.cc`,\n"
      "`tools/dev/build dev`, `tools/dev/no_such dev` and `tests/golden/`.\n";
  EXPECT_THAT(MissingPaths({{"docs/a.md", text}}),
              ElementsAre("docs/a.md:1: there is no core/base/no_such.h",
                          "docs/a.md:3: there is no tools/dev/no_such"));
}

TEST(PagesTest, ArchitectureSaysWhatEachFolderMayInclude) {
  EXPECT_THAT(
      WrongRows(ParseLayering(Manifest()), FolderRows(ReadFile("docs/architecture.md").text)),
      IsEmpty());
}

TEST(PagesTest, CatchesAWrongRow) {
  const Layering layering = ParseLayering(
      "core/base|||status.h\n"
      "core/io|ckpt::core_base||storage.h\n"
      "formats|ckpt::core_io||format.h\n"
      "formats/dcp|ckpt::formats|ckpt::core_base|source.h\n"
      "formats/zip|ckpt::core_io||reader.h\n");
  const std::string head = "| folder | holds | may include |\n|---|---|---|\n";
  EXPECT_THAT(
      WrongRows(layering, FolderRows(head + "| `core/base` | errors | – |\n"
                                            "| `core/io` | files | base |\n"
                                            "| `formats` | `Format` | core |\n"
                                            "| `formats/dcp`, `formats/zip` | x | core, formats "
                                            "|\n")),
      IsEmpty());
  EXPECT_THAT(WrongRows(layering, FolderRows(head + "| `core/base` | errors | – |\n"
                                                    "| `core/io` | files | json |\n"
                                                    "| `formats/dcp` | x | core, formats, zip |\n"
                                                    "| `formats/old` | x | – |\n"
                                                    "| `core/io` | files | base |\n"
                                                    "| `formats/zip` | x | core |\n")),
              ElementsAre("core/io: says json, which it does not depend on",
                          "core/io: does not say core/base",
                          "formats/dcp: says zip, which it does not depend on",
                          "formats/old: is no folder with a target", "core/io: has two rows",
                          "formats: has no row"));
}

}  // namespace
}  // namespace ckpt::hygiene
