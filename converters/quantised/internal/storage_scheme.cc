#include "converters/quantised/internal/storage_scheme.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "converters/quantised/decoded_weights.h"
#include "core/base/glob.h"
#include "core/tensor/mxfp4.h"

namespace ckpt::internal {
namespace {

using layout::Configuration;
using layout::Value;

const Value* Find(const Configuration& config, std::string_view name) {
  const auto found = config.find(fmt::format("{}.{}", kQuantizationConfig, name));
  const bool is_said = found != config.end() && !found->second.is_null();
  return is_said ? &found->second : nullptr;
}

// The value of a member that is fixed here, or else is not said.
Status Require(const Configuration& config, std::string_view name, std::string_view only) {
  const Value* const value = Find(config, name);
  if (value == nullptr || (value->AsText() != nullptr && *value->AsText() == only)) {
    return OkStatus();
  }
  return Error(ErrorKind::kUnsupported,
               fmt::format("weights are quantised in a form that nothing here decodes: {}", name))
      .Expected(only)
      .Actual(layout::FormatValue(*value));
}

// [rows, columns] of a block.
Status ReadBlock(const Configuration& config, StorageScheme& scheme) {
  const Value* const value = Find(config, "weight_block_size");
  const Value::List* const sizes = value == nullptr ? nullptr : value->AsList();
  const auto is_size = [](const Value& size) {
    return size.AsInt() != nullptr && *size.AsInt() > 0;
  };
  if (sizes == nullptr || sizes->size() != 2 || !std::ranges::all_of(*sizes, is_size)) {
    return Error(ErrorKind::kUnsupported,
                 "weights are quantised in a form that nothing here decodes: weight_block_size")
        .Expected("the rows and columns of a block, [128, 128]")
        .Actual(value == nullptr ? "none" : layout::FormatValue(*value));
  }
  scheme.block_rows = *(*sizes)[0].AsInt();
  scheme.block_columns = *(*sizes)[1].AsInt();
  return OkStatus();
}

Status ReadExcluded(const Configuration& config, std::string_view name, StorageScheme& scheme) {
  const Value* const value = Find(config, name);
  if (value == nullptr) return OkStatus();
  const auto wrong = [&] {
    return Error(ErrorKind::kBadMetadata, fmt::format("{} is no list of modules", name))
        .Actual(layout::FormatValue(*value));
  };
  if (value->AsList() == nullptr) return wrong();
  for (const Value& module : *value->AsList()) {
    if (module.AsText() == nullptr) return wrong();
    scheme.excluded.push_back(*module.AsText());
  }
  return OkStatus();
}

Result<StorageScheme> ReadFp8(const Configuration& config) {
  // DeepSeek-V3 is published with scales in float32, Qwen3 in bfloat16.
  StorageScheme scheme{.method = "fp8",
                       .codes_suffix = "",
                       .scales_suffix = "_scale_inv",
                       .scales_dtypes = {DType::kFloat32, DType::kBfloat16, DType::kFloat16}};
  Status status = Require(config, "fmt", "e4m3");
  status.Add(Require(config, "activation_scheme", "dynamic"));
  status.Add(Require(config, "expert_dtype", "fp8"));
  status.Add(ReadBlock(config, scheme));
  if (!status.ok()) return status;
  return scheme;
}

StorageScheme Mxfp4() {
  return {.method = "mxfp4",
          .coding = Coding::kMxfp4,
          .codes_suffix = "_blocks",
          .scales_suffix = "_scales",
          .codes_dtype = DType::kUint8,
          .scales_dtypes = {DType::kUint8},
          .block_columns = kMxfp4BlockElements};
}

}  // namespace

bool StorageScheme::Excludes(std::string_view key) const {
  const std::string_view module = key.substr(0, std::min(key.rfind('.'), key.size()));
  return std::ranges::any_of(excluded, [&](const std::string& name) {
    return MatchesGlob(name, module) || MatchesGlob(name + ".*", module) || module.ends_with(name);
  });
}

Result<std::optional<StorageScheme>> ReadScheme(const Configuration& config) {
  const Value* const method = Find(config, "quant_method");
  if (method == nullptr || method->AsText() == nullptr) return std::optional<StorageScheme>();
  StorageScheme scheme;
  if (*method->AsText() == "fp8") {
    CKPT_ASSIGN_OR_RETURN(scheme, ReadFp8(config));
  } else if (*method->AsText() == "mxfp4") {
    scheme = Mxfp4();
  } else {
    return std::optional<StorageScheme>();
  }
  // MiniMax has its own name for it.
  for (const std::string_view name : {"modules_to_not_convert", "ignored_layers"}) {
    CKPT_RETURN_IF_ERROR(ReadExcluded(config, name, scheme));
  }
  return std::optional(std::move(scheme));
}

}  // namespace ckpt::internal
