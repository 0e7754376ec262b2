#include "tools/ckpt-inspect/internal/not_compared.h"

#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ckpt::inspect {
namespace {

// What takes no part, by the reason, one line each: "random number generators: 5 entries of A".
void AddLeftOut(const Comparison& comparison, std::vector<std::string>& lines) {
  std::map<std::string, std::vector<std::string>> sides;  // by the reason
  for (const auto& [side, rest] : {std::pair('A', &comparison.a), std::pair('B', &comparison.b)}) {
    std::map<std::string_view, std::vector<const LeftOutEntry*>> entries;
    for (const LeftOutEntry& entry : rest->left_out) entries[entry.why].push_back(&entry);
    for (const auto& [why, of_side] : entries) {
      sides[std::string(why)].push_back(
          of_side.size() == 1 ? fmt::format("{} of {}", of_side.front()->key, side)
                              : fmt::format("{} entries of {}", of_side.size(), side));
    }
  }
  for (const auto& [why, of_sides] : sides) {
    lines.push_back(fmt::format("{}: {}", why, fmt::join(of_sides, ", ")));
  }
}

// What was not found out of the buffers of optimizers.
void AddBuffers(const Comparison& comparison, std::vector<std::string>& lines) {
  for (const auto& [side, rest] : {std::pair('A', &comparison.a), std::pair('B', &comparison.b)}) {
    if (rest->places_unknown.ok()) continue;
    lines.push_back(fmt::format("{} of {}: {}",
                                comparison.by_parameter
                                    ? "whether parameters lie as on the other side in the buffers"
                                    : "parameters without the gaps between them in the buffers",
                                side, rest->places_unknown.first().message));
  }
}

// The training states that are there, if they are not both understood.
void AddTrainingStates(const Comparison& comparison, std::vector<std::string>& lines) {
  for (const auto& [side, rest, other, of_other] :
       {std::tuple('A', &comparison.a, 'B', &comparison.b),
        std::tuple('B', &comparison.b, 'A', &comparison.a)}) {
    if (!rest->holds_run) continue;
    std::string why;
    if (!rest->not_a_run.ok()) {
      const Problem& problem = rest->not_a_run.first();
      why = problem.message;
      if (!problem.tensor.empty()) why += ": " + problem.tensor;
    } else if (!of_other->holds_run) {
      why = fmt::format("{} holds none", other);
    } else {
      why = fmt::format("that of {} is not understood", other);
    }
    lines.push_back(fmt::format("the training state of {}: {}", side, why));
  }
}

}  // namespace

std::vector<std::string> NotCompared(const Comparison& comparison) {
  std::vector<std::string> lines;
  AddLeftOut(comparison, lines);
  AddBuffers(comparison, lines);
  if (!comparison.run) {
    AddTrainingStates(comparison, lines);
    return lines;
  }
  for (const auto& [side, names] :
       {std::pair('A', &comparison.run->only_a), std::pair('B', &comparison.run->only_b)}) {
    if (names->empty()) continue;
    lines.push_back(fmt::format("what {} alone says: {}", side, fmt::join(*names, ", ")));
  }
  for (const auto& [side, rest] : {std::pair('A', &comparison.a), std::pair('B', &comparison.b)}) {
    if (rest->no_settings.ok()) continue;
    lines.push_back(fmt::format("the settings of the runs: of {}, {}", side,
                                rest->no_settings.first().message));
  }
  if (!comparison.run->has_same_arguments) lines.push_back("the arguments of the runs");
  if (!comparison.run->groups_unknown.ok()) {
    lines.push_back("the optimizers' groups: " + comparison.run->groups_unknown.first().message);
  }
  return lines;
}

}  // namespace ckpt::inspect
