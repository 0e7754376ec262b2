#include "tools/ckpt-convert/option_words.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/text_number.h"
#include "core/base/wildcard.h"
#include "core/codec/zstd.h"

namespace ckpt::cli {

Result<int> ParseCompression(std::string_view word) {
  if (word == "zstd") return kDefaultZstdLevel;
  std::string_view digits = word;
  const auto level = TakePrefix("zstd:", digits) ? ParseNumber<int>(digits) : std::nullopt;
  if (level && *level >= 1 && *level <= kMaxZstdLevel) return *level;
  return Error(ErrorKind::kUsage, "--compress takes zstd or zstd:LEVEL")
      .Expected(fmt::format("a level from 1 to {}", kMaxZstdLevel))
      .Actual(word);
}

Result<DType> ParseDtypeWord(const std::string& word) {
  const std::map<std::string, std::string> short_names = {
      {"fp16", "float16"}, {"bf16", "bfloat16"}, {"fp32", "float32"}, {"fp64", "float64"}};
  const auto known = short_names.find(word);
  const std::optional<DType> dtype = ParseDType(known == short_names.end() ? word : known->second);
  if (dtype) return *dtype;
  return Error(ErrorKind::kUsage, "unknown element type")
      .Actual(word)
      .Expected("float16, bfloat16, float32 or float64");
}

Result<std::map<std::string, std::string>> ParseRename(const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> rename;
  for (const std::string& pair : pairs) {
    Result<RewriteRule> rule = ParseRewrite(pair);
    if (!rule.ok()) return std::move(rule).status().While("reading --rename");
    const auto& [from, to] = *rule;
    if (from == to) {
      return Error(ErrorKind::kUsage, "--rename changes nothing: both names are the same")
          .Actual(pair);
    }
    if (rename.contains(from)) {
      return Error(ErrorKind::kUsage, "several --rename are for one key")
          .Expected("one")
          .Actual(fmt::format("{} and {}", rename.at(from), to))
          .Tensor(from);
    }
    rename[from] = to;
  }
  return rename;
}

}  // namespace ckpt::cli
