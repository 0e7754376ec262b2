#include "tools/ckpt-train/run_options.h"

#include <cstdint>
#include <utility>

#include "core/base/units.h"
#include "tools/ckpt-train/yaml_settings.h"
#include "trainer/comm/launcher.h"

namespace ckpt::train {
namespace {

constexpr std::uint64_t kMaxConfigBytes = kMiB;

}  // namespace

Result<layout::Configuration> GivenSettings(Storage& storage, const RunOptions& options) {
  layout::Configuration settings;
  if (!options.config.empty()) {
    CKPT_ASSIGN_OR_RETURN(const std::string text,
                          ReadSmallFile(storage, options.config, kMaxConfigBytes));
    CKPT_ASSIGN_OR_RETURN(settings, ParseYamlSettings(text, options.config));
  }
  Status problems;
  layout::Configuration assigned;
  for (const auto& [name, value] :
       {std::pair("init", options.init), std::pair("load", options.load),
        std::pair("save", options.save), std::pair("metrics", options.metrics)}) {
    if (!value.empty()) assigned[name] = value;
  }
  for (const std::string& text : options.set) {
    auto assignment = ParseAssignment(text);
    if (!assignment.ok()) {
      problems.Add(std::move(assignment).status());
    } else if (!assigned.insert(std::move(*assignment)).second) {
      problems.Add(Error(ErrorKind::kUsage, "the command line sets a setting twice").Actual(text));
    }
  }
  if (!problems.ok()) return problems;
  for (auto& [name, value] : assigned) settings.insert_or_assign(name, std::move(value));
  return settings;
}

int NumRanks(const RunOptions& options) {
  return options.ranks > 0 ? options.ranks : trainer::NumLaunchedProcesses();
}

}  // namespace ckpt::train
