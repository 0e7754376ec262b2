// The files of a published model that hold no weights: they travel with the weights, byte for byte.
#ifndef CKPT_CONVERTERS_VERBS_SIDE_FILES_H_
#define CKPT_CONVERTERS_VERBS_SIDE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// A tensor, object or file of the source that the target has no place for.
struct LeftOutEntry {
  std::string key;  // of a file: its name, relative to the repository
  std::uint64_t bytes = 0;
  std::string why;
  bool is_bookkeeping = false;  // nobody misses it
};

// The files of a repository. Names are relative, with '/'.
struct SideFiles {
  std::vector<std::string> carried;    // in byte order
  std::vector<LeftOutEntry> left_out;  // in byte order of the name
};

// Sorts the files of `repository` by what belongs to a published model: configuration, tokenizer,
// templates, documents, code and pictures are carried. All others are left out, weights among them:
// checkpoints and logs of a training run, other forms of the weights, and whatever lies in a folder
// that has weights of its own.
//
// Directories of version control and download caches (`.git`, `.cache`) and our own manifest are in
// neither list. Links are followed. Errors: kIo, kResource, kUnsupported (a name that is not
// UTF-8).
Result<SideFiles> ListSideFiles(Storage& storage, const Path& repository);

// Git LFS leaves a pointer where it did not fetch a file. Errors: kIncomplete, naming each one of
// `names` that is a pointer; kIo.
Status CheckFetched(Storage& storage, const Path& repository,
                    const std::vector<std::string>& names);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_SIDE_FILES_H_
