// The project's sources as text: where they are, what they include, what is code and what is
// comment.
#ifndef CKPT_TESTS_HYGIENE_SOURCE_FILE_H_
#define CKPT_TESTS_HYGIENE_SOURCE_FILE_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::hygiene {

struct SourceFile {
  std::string path;  // from the root, with forward slashes: "core/tensor/box.h"
  std::string text;
};

struct Include {
  std::string target;   // what stands between the quotes or brackets
  bool quoted = false;  // "core/io/path.h" or <vector>
  int line = 0;
};

// Every .h and .cc under the given top-level folders, sorted by path.
std::vector<SourceFile> ReadSources(const std::vector<std::string>& top_folders);

// The same of files with one of the extensions.
std::vector<SourceFile> ReadFiles(const std::vector<std::string>& top_folders,
                                  const std::set<std::string>& extensions);

// One file, by its path. Empty text if it cannot be read.
SourceFile ReadFile(const std::string& path);

std::vector<Include> FindIncludes(std::string_view text);

// `text` with comments blanked, newlines and string literals kept.
std::string WithoutComments(std::string_view text);

bool IsHeader(const SourceFile& file);

}  // namespace ckpt::hygiene

#endif  // CKPT_TESTS_HYGIENE_SOURCE_FILE_H_
