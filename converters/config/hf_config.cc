#include "converters/config/hf_config.h"

#include <string>
#include <utility>

#include "converters/families/family_registry.h"
#include "core/layout/flatten_json.h"

namespace ckpt {
namespace {

using layout::Configuration;

constexpr std::string_view kRopeScaling = "rope_scaling.";
constexpr std::string_view kRopeParameters = "rope_parameters.";

// `rope_scaling` is the older name of `rope_parameters`, and `type` that of `rope_type`. If a file
// has both objects, transformers takes the older one.
void AdoptOldRope(Configuration& config) {
  Configuration old;
  for (const auto& [name, value] : config) {
    if (name.starts_with(kRopeScaling)) old.emplace(name.substr(kRopeScaling.size()), value);
  }
  if (!old.empty()) {
    std::erase_if(config, [](const auto& entry) {
      return entry.first.starts_with(kRopeScaling) || entry.first.starts_with(kRopeParameters);
    });
    for (auto& [name, value] : old) {
      config.emplace(std::string(kRopeParameters) + name, std::move(value));
    }
  }
  auto type = config.extract(std::string(kRopeParameters) + "type");
  if (type.empty()) return;
  type.key() = std::string(kRopeParameters) + "rope_type";
  config.insert(std::move(type));  // where both are, `rope_type` counts
}

}  // namespace

Result<Configuration> ParseHfConfig(std::string_view json, std::string_view name,
                                    std::string_view model_type) {
  CKPT_ASSIGN_OR_RETURN(Configuration config, layout::FlattenJson(json, name));
  AdoptOldRope(config);
  if (!model_type.empty()) config["model_type"] = std::string(model_type);
  if (Status status = ReadAsClass(config); !status.ok()) return std::move(status).File(name);
  return config;
}

}  // namespace ckpt
