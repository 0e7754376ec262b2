#include "core/layout/find_value.h"

namespace ckpt::layout {

std::optional<std::int64_t> FindInt(const Configuration& config, std::string_view name) {
  const auto found = config.find(name);
  const std::int64_t* const value = found == config.end() ? nullptr : found->second.AsInt();
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> FindFloat(const Configuration& config, std::string_view name) {
  const auto found = config.find(name);
  const double* const value = found == config.end() ? nullptr : found->second.AsFloat();
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const std::string* FindText(const Configuration& config, std::string_view name) {
  const auto found = config.find(name);
  return found == config.end() ? nullptr : found->second.AsText();
}

}  // namespace ckpt::layout
