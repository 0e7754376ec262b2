// What the words of some options of ckpt-convert mean.
#ifndef CKPT_TOOLS_CKPT_CONVERT_OPTION_WORDS_H_
#define CKPT_TOOLS_CKPT_CONVERT_OPTION_WORDS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/dtype.h"

namespace ckpt::cli {

// Errors of all of these: kUsage.

// The level of "zstd" or "zstd:7".
Result<int> ParseCompression(std::string_view word);

// "bfloat16" or "bf16".
Result<DType> ParseDtypeWord(const std::string& word);

// OpenModelOptions::rename of words OLD=NEW.
Result<std::map<std::string, std::string>> ParseRename(const std::vector<std::string>& pairs);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CKPT_CONVERT_OPTION_WORDS_H_
