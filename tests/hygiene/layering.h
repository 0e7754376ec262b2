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

// Folder -> folders whose headers it may include: those it declares and, where their edges are public, those
// they declare.
using Layering = std::map<std::string, std::set<std::string>>;

// Parses the manifest that ckpt_write_layering_manifest writes. `direct` leaves out what is only
// inherited.
Layering ParseLayering(std::string_view manifest, bool direct = false);

// "path:line: includes … but <folder> declares no edge to <folder>", one for each wrong include.
std::vector<std::string> WrongIncludes(const Layering& layering,
                                       const std::vector<SourceFile>& files);

}  // namespace ckpt::hygiene

#endif  // CKPT_TESTS_HYGIENE_LAYERING_H_
