// The files of a Hugging Face repository that hold no weights: they travel with the weights, byte
// for byte.
#ifndef CKPT_CONVERTERS_VERBS_SIDE_FILES_H_
#define CKPT_CONVERTERS_VERBS_SIDE_FILES_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// Whether a file of a repository holds weights, by the names that the frameworks give them.
// Everything else is a side file, known or not: tokenizers and configurations keep getting new
// ones.
[[nodiscard]] bool IsWeightFile(std::string_view name);

// Relative names of all side files of `repository`, in byte order; directories of version control
// and download caches
// (`.git`, `.cache`) and our own sidecar left out. Links are followed. Errors: kIo, kResource.
Result<std::vector<std::string>> ListSideFiles(Storage& storage, const Path& repository);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_SIDE_FILES_H_
