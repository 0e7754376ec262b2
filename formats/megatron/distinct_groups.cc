#include "formats/megatron/distinct_groups.h"

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "core/layout/value.h"
#include "core/training/run_settings.h"

namespace ckpt::megatron {
namespace {

// Mixes all settings that it visits into one number, which is the same for equal settings.
struct MixEach {
  std::size_t mixed = 0;

  void operator()(std::string_view /*name*/, const auto& setting) { Mix(setting); }

  void MixNumber(std::size_t number) {
    constexpr std::size_t kFactor = 0x9E3779B97F4A7C15;  // 2^64 by the golden ratio, odd
    mixed = (mixed ^ number) * kFactor;
    mixed ^= mixed >> 32U;
  }
  void Mix(bool setting) { MixNumber(setting ? 1 : 2); }
  void Mix(double setting) { MixNumber(std::hash<double>()(setting)); }  // 0 and -0 are equal
  void Mix(const std::array<double, 2>& setting) {
    for (const double number : setting) Mix(number);
  }
  void Mix(const std::string& setting) { MixNumber(std::hash<std::string>()(setting)); }
  void Mix(const layout::Value& setting) {
    if (const double* const number = setting.AsFloat()) return Mix(*number);
    if (const std::string* const text = setting.AsText()) return Mix(*text);
    const layout::Value::List* const list = setting.AsList();
    if (list == nullptr) return Mix(layout::FormatValue(setting));
    for (const layout::Value& item : *list) Mix(item);
  }
};

}  // namespace

std::size_t DistinctGroups::Hash::operator()(const ParamGroup& settings) const {
  MixEach mix;
  VisitGroup(settings, mix);
  VisitOptimizer(settings, mix);
  for (const auto& [name, value] : settings.others) {
    mix.Mix(name);
    mix.Mix(value);
  }
  return mix.mixed;
}

std::size_t DistinctGroups::Add(const ParamGroup& settings) {
  const std::size_t next = groups_.size();
  // Settings with a NaN are equal to none, and would all be compared with each other.
  const bool can_be_found = settings == settings;
  if (can_be_found) {
    const auto [found, is_new] = positions_.try_emplace(settings, next);
    if (!is_new) return found->second;
  }
  groups_.push_back(settings);
  return next;
}

}  // namespace ckpt::megatron
