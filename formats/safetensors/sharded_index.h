// `model.safetensors.index.json`: which file of a sharded Hugging Face repository holds which
// tensor.
#ifndef CKPT_FORMATS_SAFETENSORS_SHARDED_INDEX_H_
#define CKPT_FORMATS_SAFETENSORS_SHARDED_INDEX_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace ckpt::safetensors {

inline constexpr std::string_view kSingleFileName = "model.safetensors";
inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";
inline constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
// How names of files with tensors end.
inline constexpr std::string_view kFileSuffix = ".safetensors";

struct ShardedIndex {
  // Bytes of all tensors, as most writers count them; some write a number of elements here, so it
  // proves nothing alone.
  std::optional<std::uint64_t> total_size;
  std::optional<std::uint64_t> total_parameters;
  // Tensor → file, in document order.
  std::vector<std::pair<std::string, std::string>> weight_map;

  friend bool operator==(const ShardedIndex&, const ShardedIndex&) = default;
};

// Errors: kBadMetadata (syntax, a repeated tensor, no weight_map), kUnsafePath (a file outside the
// directory; names the tensor).
Result<ShardedIndex> ParseShardedIndex(std::string_view json, std::string_view file);

// Compares the index with what was found: tensors by name, and files that it names but that are not
// there, sorted.
//
// Errors, a problem for each tensor: kMissingFile, kMissing (the file is there and lacks it).
Status CheckWeightMap(const ShardedIndex& index, const std::set<std::string_view>& found,
                      const std::vector<std::string>& missing_files);

// As transformers writes it: indented by 2, metadata sorted, a line feed at the end. The weight map
// keeps its order.
std::string SerializeShardedIndex(const ShardedIndex& index);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_SHARDED_INDEX_H_
