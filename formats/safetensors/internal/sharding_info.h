// What torch's distributed Hugging Face writer notes in a shard: where each of its pieces lies in
// the whole tensor.
#ifndef CKPT_FORMATS_SAFETENSORS_INTERNAL_SHARDING_INFO_H_
#define CKPT_FORMATS_SAFETENSORS_INTERNAL_SHARDING_INFO_H_

#include <string>
#include <string_view>
#include <unordered_map>

#include "core/base/result.h"
#include "core/tensor/shape.h"

namespace ckpt::safetensors {

// The key of a header's metadata that holds it.
inline constexpr std::string_view kShardingInfoKey = "DCP_SHARDING_INFO";

// Tensor → offsets of the piece in this file.
using ShardingInfo = std::unordered_map<std::string, Dims>;

// Errors: kBadMetadata (syntax, a tensor twice or without saved_offsets).
Result<ShardingInfo> ParseShardingInfo(std::string_view json, std::string_view file);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_INTERNAL_SHARDING_INFO_H_
