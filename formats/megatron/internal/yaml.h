// YAML as PyYAML's safe loader reads it.
#ifndef CKPT_FORMATS_MEGATRON_INTERNAL_YAML_H_
#define CKPT_FORMATS_MEGATRON_INTERNAL_YAML_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace ckpt::megatron {

inline constexpr std::uint64_t kMaxYamlBytes = std::uint64_t{4} << 20;

// The one document of `text`, a mapping, as JSON. Plain words become null, booleans and numbers by
// the rules of YAML 1.1; what is not finite becomes text. Aliases are written out. `name` (a path)
// appears in errors.
//
// Errors: kBadMetadata (no YAML, no mapping, a key twice, a key that is not plain text), kResource
// (too large, or its aliases make it so; nested too deeply), kUnsupported (a tag).
Result<std::string> YamlToJson(std::string_view text, std::string_view name);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_INTERNAL_YAML_H_
