// Changing one member of a config.json and nothing else.
#ifndef CKPT_CONVERTERS_CONFIG_CONFIG_PATCH_H_
#define CKPT_CONVERTERS_CONFIG_CONFIG_PATCH_H_

#include <string>
#include <string_view>

#include "core/tensor/dtype.h"

namespace ckpt {

// The same text with the top-level text value of `key` replaced: order, spacing and unknown keys
// stay. Unchanged if the key is absent or its value is not text. REQUIRES: `json` is valid.
[[nodiscard]] std::string ReplaceTextValue(std::string_view json, std::string_view key,
                                           std::string_view value);

// The same text without the top-level member `key`, whatever its value. Unchanged if it has none.
// REQUIRES: `json` is valid.
[[nodiscard]] std::string RemoveMember(std::string_view json, std::string_view key);

// The configuration of a model whose weights are `dtype`: readers that trust `dtype` (transformers
// 5) or `torch_dtype` (4) would round the weights to another type while loading them.
[[nodiscard]] std::string DescribeDtype(std::string_view json, DType dtype);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_CONFIG_PATCH_H_
