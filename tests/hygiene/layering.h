// The edges that the build declares between folders, and the includes that follow none of them.
#ifndef CKPT_TESTS_HYGIENE_LAYERING_H_
#define CKPT_TESTS_HYGIENE_LAYERING_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/hygiene/source_file.h"

namespace ckpt::hygiene {

// What a folder declares: folders whose headers its own include.
struct FolderEdges {
  std::set<std::string> of_headers;  // of those that other folders include
  std::set<std::string> of_sources;  // of all others alone
  std::set<std::string> headers;     // paths from the root of those that other folders include

  [[nodiscard]] bool Has(const std::string& folder) const {
    return of_headers.contains(folder) || of_sources.contains(folder);
  }
};
using Layering = std::map<std::string, FolderEdges>;

// What ckpt_write_layering_manifest wrote for this build.
std::string Manifest();
Layering ParseLayering(std::string_view manifest);

// "path:line: includes … but <folder> declares no edge to <folder>", one for each wrong include.
// Edges are not inherited: a folder declares every one that it includes, and whether its headers
// do.
std::vector<std::string> WrongIncludes(const Layering& layering,
                                       const std::vector<SourceFile>& files);

// "<folder> declares an edge to <folder>, but …", one for each edge that no include of `files`
// follows.
std::vector<std::string> UnusedEdges(const Layering& layering,
                                     const std::vector<SourceFile>& files);

// "<header> is included by its own folder alone", one for each header that should be in internal/:
// no file of another folder includes it, nor does a header that one includes. Tests do not count.
std::vector<std::string> HeadersOfOneFolder(const Layering& layering,
                                            const std::vector<SourceFile>& files);

}  // namespace ckpt::hygiene

#endif  // CKPT_TESTS_HYGIENE_LAYERING_H_
