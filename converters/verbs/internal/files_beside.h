// The files beside a target of one file: those of a conversion, and those of the one it replaces.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_FILES_BESIDE_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_FILES_BESIDE_H_

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "converters/verbs/convert.h"
#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "formats/format.h"

namespace ckpt {

// Names of files that `target` shows, if it is there: a reader of it must not find other elements
// in them. Of a target that cannot be read, every file in its directory. Errors: kIo.
Result<std::vector<std::string>> NamesInUse(Storage& storage, const Format& format,
                                            const Path& target);

struct FilesBeside {
  std::set<std::string, std::less<>> replaced;  // nobody needs them, and new ones have their names
  std::vector<std::string> removed;             // that a target which is replaced leaves behind
};

// Errors: kAlreadyExists (a file that may not be replaced has a name that `plan` needs).
Result<FilesBeside> CheckBeside(Storage& storage, const Format& format, const WritePlan& plan,
                                const ConvertOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_FILES_BESIDE_H_
