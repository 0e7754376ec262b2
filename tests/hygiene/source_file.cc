#include "tests/hygiene/source_file.h"

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include <boost/filesystem/operations.hpp>

namespace ckpt::hygiene {
namespace {

namespace fs = boost::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream in(path.string(), std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

std::vector<SourceFile> ReadSources(const std::vector<std::string>& top_folders) {
  return ReadFiles(top_folders, {".h", ".cc", ".cuh", ".cu"});
}

std::vector<SourceFile> ReadFiles(const std::vector<std::string>& top_folders,
                                  const std::set<std::string>& extensions) {
  const fs::path root = CKPT_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (const std::string& folder : top_folders) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const fs::path& path = entry.path();
      if (!extensions.contains(path.extension().string())) continue;
      files.push_back({fs::relative(path, root).generic_string(), ReadText(path)});
    }
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

SourceFile ReadFile(const std::string& path) {
  return {path, ReadText(fs::path(CKPT_SOURCE_DIR) / path)};
}

std::vector<Include> FindIncludes(std::string_view text) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"].*)re");
  std::vector<Include> includes;
  std::istringstream lines{WithoutComments(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (!std::regex_match(line, match, kInclude)) continue;
    includes.push_back({.target = match[2], .quoted = match[1] == "\"", .line = number});
  }
  return includes;
}

// A small state machine; raw strings are understood as far as this project writes them.
std::string WithoutComments(std::string_view text) {
  std::string out(text);
  std::size_t i = 0;
  const auto starts = [&](std::string_view what) { return text.substr(i, what.size()) == what; };
  const auto blank_until = [&](std::size_t end) {
    for (; i < end; ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  };
  const auto find = [&](std::string_view what, std::size_t from) {
    return std::min(text.find(what, from), text.size());
  };
  while (i < text.size()) {
    if (starts("//")) {
      blank_until(find("\n", i));
    } else if (starts("/*")) {
      blank_until(std::min(find("*/", i + 2) + 2, text.size()));
    } else if (starts("R\"")) {
      const std::size_t open = find("(", i);
      const std::string close = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
      i = std::min(find(close, open) + close.size(), text.size());
    } else if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"' && text[i] != '\n'; ++i) {
        if (text[i] == '\\') ++i;
      }
      ++i;
    } else if (starts("'\"'") || starts("'\\\"'")) {
      i = find("'", i + 2) + 1;
    } else {
      ++i;
    }
  }
  return out;
}

bool IsHeader(const SourceFile& file) {
  return file.path.ends_with(".h") || file.path.ends_with(".cuh");
}

}  // namespace ckpt::hygiene
