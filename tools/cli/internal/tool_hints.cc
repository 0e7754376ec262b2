#include "tools/cli/internal/tool_hints.h"

#include <algorithm>
#include <array>

#include "core/checkpoint/no_match.h"
#include "core/manifest/read_manifest.h"
#include "core/training/run_format.h"

namespace ckpt::cli {
namespace {

constexpr std::string_view kToolForKeys = "ckpt-inspect tensors PATH lists the keys";
constexpr std::string_view kToolForManifest =
    "ckpt-inspect repair PATH -o DST writes a copy of the checkpoint that contains it again";
constexpr std::string_view kToolsForWeights =
    "ckpt-convert --weights-only leaves the optimizer out, ckpt-train --set finetune=true takes "
    "the weights alone";

struct ToolHint {
  std::string_view of_core;
  std::string_view of_tools;
};

constexpr std::array kToolHints = {ToolHint{kListKeys, kToolForKeys},
                                   ToolHint{kRepairManifest, kToolForManifest},
                                   ToolHint{kTakeWeightsAlone, kToolsForWeights}};

}  // namespace

std::string_view InWordsOfTools(std::string_view hint) {
  const auto* const known = std::ranges::find(kToolHints, hint, &ToolHint::of_core);
  return known == kToolHints.end() ? hint : known->of_tools;
}

}  // namespace ckpt::cli
