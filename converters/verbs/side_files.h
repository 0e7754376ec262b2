// The files of a published model that hold no weights: they travel with the weights, byte for byte.
// Only a config.json that would make readers round or decode the weights is changed.
#ifndef CKPT_CONVERTERS_VERBS_SIDE_FILES_H_
#define CKPT_CONVERTERS_VERBS_SIDE_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/tensor/dtype.h"
#include "formats/format.h"

namespace ckpt {

// A tensor, object or file of the source that the target has no place for.
struct LeftOutEntry {
  std::string key;  // of a file: its name, relative to the repository
  std::uint64_t bytes = 0;
  std::string why;
  bool is_bookkeeping = false;  // of no use outside the source; the summary does not count it
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
// Directories of version control and download caches (`.git`, `.cache`), conversions that are not
// complete, our own manifest and Megatron-Core's integrity.json are in neither list. Links are
// followed. Errors: kIo, kResource, kUnsupported (a name that is not
// UTF-8).
Result<SideFiles> ListSideFiles(Storage& storage, const Path& repository);

// Git LFS leaves a pointer where it did not fetch a file. Errors: kIncomplete, naming each one of
// `names` that is a pointer; kIo.
Status CheckFetched(Storage& storage, const Path& repository,
                    const std::vector<std::string>& names);

// Side files as a checkpoint takes them.
struct CarriedFiles {
  std::vector<WriteCopy> copies;  // byte for byte, named relative to the repository
  std::vector<SideText> texts;    // of new content
  std::vector<SideText> indexes;  // of files of tensors, for the target's writer to judge
};

struct CarryOptions {
  const Format* target = nullptr;
  // The dtype of the target's weights. Where the target's readers go by config.json, it must say
  // this one, or they round the weights to another. Nothing: it does already.
  std::optional<DType> dtype = {};
  // The weights are plain, also where config.json calls them quantised: it must not.
  bool is_decoded = false;
  // Leave out the index of the weights' files in every format: the weights are others.
  bool drops_index = false;
};

// How `names`, side files of `repository`, travel into a checkpoint. Errors: those of reading.
Result<CarriedFiles> CarrySideFiles(Storage& storage, const Path& repository,
                                    const std::vector<std::string>& names,
                                    const CarryOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_SIDE_FILES_H_
