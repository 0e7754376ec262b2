// A Hugging Face config.json as a layout::Configuration.
#ifndef CKPT_CONVERTERS_CONFIG_HF_CONFIG_H_
#define CKPT_CONVERTERS_CONFIG_HF_CONFIG_H_

#include <cstdint>
#include <string_view>

#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

inline constexpr std::string_view kHfConfigName = "config.json";
// Larger than any real one.
inline constexpr std::uint64_t kMaxHfConfigBytes = std::uint64_t{64} << 20;

// A config.json, as the class of its `model_type` in transformers reads it: keys that the file
// lacks get the defaults of the class (converters/families), keys that the class does not read are
// removed, and older spellings (`rope_scaling`, its `type`) are replaced by today's. `model_type`,
// if it is given, replaces the file's own.
//
// Errors: those of FlattenJson; kBadMetadata (a key is of the wrong kind).
Result<layout::Configuration> ParseHfConfig(std::string_view json, std::string_view name,
                                            std::string_view model_type = {});

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_HF_CONFIG_H_
