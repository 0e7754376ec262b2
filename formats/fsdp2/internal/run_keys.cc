#include "formats/fsdp2/internal/run_keys.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/base/text_number.h"

namespace ckpt::fsdp2 {
namespace {

// What training loops call the place of the optimizer in what they save.
constexpr std::array<std::string_view, 3> kOptimizerNames = {"optim.", "optimizer.", "optimizers."};
// One of these stands for every parameter that torch's Adam or SGD has updated.
constexpr std::array<std::string_view, 5> kStateFields = {"step", "exp_avg", "exp_avg_sq",
                                                          "max_exp_avg_sq", "momentum_buffer"};

// Whether `prefix` is empty or its last component names an optimizer.
bool IsOptimizerPrefix(std::string_view prefix) {
  return prefix.empty() || std::ranges::any_of(kOptimizerNames, [&](std::string_view name) {
           if (!prefix.ends_with(name)) return false;
           prefix.remove_suffix(name.size());
           return prefix.empty() || prefix.ends_with('.');
         });
}

std::optional<OptimizerKey> ParseBehind(std::string_view key, std::size_t at,
                                        std::string_view section) {
  const std::string_view rest = key.substr(at + section.size());
  const std::size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == rest.size()) return std::nullopt;
  return OptimizerKey{.optimizer = key.substr(0, at),
                      .section = section,
                      .owner = rest.substr(0, dot),
                      .field = rest.substr(dot + 1)};
}

}  // namespace

bool IsNumber(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, &IsDigit);
}

std::optional<OptimizerKey> ParseOptimizerKey(std::string_view key) {
  for (const std::string_view section : {kState, kGroups}) {
    for (std::size_t at = key.find(section); at != std::string_view::npos;
         at = key.find(section, at + 1)) {
      if (!IsOptimizerPrefix(key.substr(0, at))) continue;
      auto parsed = ParseBehind(key, at, section);
      if (!parsed || (section == kState && IsNumber(parsed->owner))) continue;
      // Without a name before it, "state." may be anything.
      const bool is_known = std::ranges::find(kStateFields, parsed->field) != kStateFields.end();
      if (section == kState && parsed->optimizer.empty() && !is_known) continue;
      return parsed;
    }
  }
  return std::nullopt;
}

std::set<std::string> OptimizersIn(const CheckpointIndex& index) {
  std::set<std::string> optimizers;
  for (const GlobalTensor& tensor : index.tensors()) {
    const auto parsed = ParseOptimizerKey(tensor.key);
    if (!parsed || parsed->section != kState) continue;
    if (std::ranges::find(kStateFields, parsed->field) == kStateFields.end()) continue;
    optimizers.emplace(parsed->optimizer);
  }
  return optimizers;
}

std::map<std::string, std::set<std::string>> SgdGroupsIn(const CheckpointIndex& index) {
  std::map<std::string, std::set<std::string>> groups;
  const auto add = [&](const auto& entry) {
    const auto parsed = ParseOptimizerKey(entry.key);
    if (!parsed || parsed->section != kGroups || parsed->field != "momentum") return;
    groups[std::string(parsed->optimizer)].emplace(parsed->owner);
  };
  std::ranges::for_each(index.objects(), add);
  std::ranges::for_each(index.tensors(), add);
  return groups;
}

}  // namespace ckpt::fsdp2
