// Which files of a directory make up a safetensors checkpoint.
#ifndef CKPT_FORMATS_SAFETENSORS_INTERNAL_REPOSITORY_H_
#define CKPT_FORMATS_SAFETENSORS_INTERNAL_REPOSITORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "formats/safetensors/sharded_index.h"

namespace ckpt::safetensors {

// What torch's distributed writer leaves is "shard-<rank>-<stem>-<number>-of-<total>": a rank has a
// file for each number of which it has tensors, so nothing says how many there were.
struct AbsentShards {
  std::uint32_t ranks = 0;         // as far as the names show
  std::uint32_t total = 0;         // of numbers
  std::vector<std::string> names;  // the first ones: all, or kMostNamed
  std::uint64_t count = 0;
};

struct RepositoryFiles {
  // Names relative to the directory, in byte order; all of them exist.
  std::vector<std::string> shards;
  // Named by the index, but not there.
  std::vector<std::string> missing;
  // Weights in the directory that are not part of the checkpoint.
  std::vector<std::string> leftover;
  // Of each stem and total of which a rank lacks a number that another rank has, or all numbers.
  // They may be lost: a rank may also have had nothing to write.
  std::vector<AbsentShards> absent;
  std::optional<ShardedIndex> index;
  std::string index_name;  // of the file that `index` was read from
};

// The first of these that applies:
//   1. `model.safetensors`, as Transformers has it: an index beside it is of an earlier save;
//   2. an index (`model.safetensors.index.json`, else the only `*.safetensors.index.json`): the
//   files it names;
//   3. `<stem>-00001-of-0000N.safetensors`: all N, with the stem "model" if there are several;
//   4. every other `*.safetensors`, among them the shards of torch's distributed writer;
//   5. the same inside `sharded/`, where that writer leaves its shards when consolidating them
//   failed.
// In cases 2 to 4, variants do not count: `<stem>.<variant>` beside the same stem without it,
// whether one file, shards, or an index.
//
// Errors: kNotFound (no weights), kMissingFile (case 3: a number is absent), those of
// ParseShardedIndex, kIo.
Result<RepositoryFiles> FindRepositoryFiles(Storage& storage, const Path& directory);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_INTERNAL_REPOSITORY_H_
