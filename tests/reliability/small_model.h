// A model of one layer and a few pages: small enough to convert ten thousand times.
#ifndef CKPT_TESTS_RELIABILITY_SMALL_MODEL_H_
#define CKPT_TESTS_RELIABILITY_SMALL_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "converters/verbs/convert.h"
#include "core/io/storage.h"

namespace ckpt::testing {

struct SmallModelOptions {
  std::uint64_t seed = 1;  // of the values
  int files = 2;           // with an index if several
  int hidden = 32;         // 35 KiB; matrices of 16 have 9 KiB
  bool has_tokenizer = false;
};

// A Hugging Face repository in `directory`, which need not exist: shards, their index and a
// config.json.
Status WriteSmallModel(Storage& storage, const Path& directory, const SmallModelOptions& options);

// Ways of converting it, on one thread.
ConvertOptions HfToFsdp(const Path& source, const Path& target);
ConvertOptions HfToTorchDist(const Path& source, const Path& target);
ConvertOptions FsdpToHf(const Path& source, const Path& target);
// To this format, whose usual names tensors get; under their own keys if it has none.
ConvertOptions ConvertTo(std::string_view format, const Path& source, const Path& target);

// Prepare and run.
Result<ConvertReport> Convert(Storage& storage, const ConvertOptions& options);
// The same by this many workers, one after the other, and what completes their work. Those that
// have finished in an earlier call are left alone; where another run left its files, one process
// does it.
Result<ConvertReport> ConvertByWorkers(Storage& storage, ConvertOptions options, int workers);

// Name below the path → content, of every file; of a file itself the name is empty.
using Tree = std::map<std::string, std::string>;
Result<Tree> ReadTree(Storage& storage, const Path& path);

// What a reader of `path` makes of it: opens it, validates the index, compares every byte with the
// manifest, which must be there unless the format is one file, and digests every tensor as it is
// stored.
Result<std::string> ReadCheckpoint(Storage& storage, const Path& path);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_SMALL_MODEL_H_
