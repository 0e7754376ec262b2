#include "converters/families/known_namings.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/base/quote.h"

namespace ckpt {
namespace {

constexpr std::array<std::string_view, 3> kExpertLayouts = {kOriginalChoice, "published", "fused"};
constexpr std::array<std::string_view, 2> kLiveLayouts = {"fused", "published"};
constexpr std::array<std::string_view, 2> kImplementations = {"transformer_engine", "local"};
constexpr std::array<std::string_view, 2> kLayerKeys = {"stacked", "per_layer"};
constexpr std::array<std::string_view, 2> kExpertNames = {"grouped", "sequential"};
constexpr std::array<std::string_view, 2> kFurtherNames = {"transformer_layer", "mtp_model_layer"};

constexpr std::array kPublishedChoices = {
    NamingChoice{.name = "expert_layout",
                 .preset = kOriginalChoice,
                 .purpose = "How experts are stored [original: as the source's origin had them]",
                 .values = kExpertLayouts},
    NamingChoice{.name = "body", .preset = kOriginalChoice}};

constexpr std::array kMegatronChoices = {
    NamingChoice{.name = "transformer_impl",
                 .purpose = "The layers that name the parameters [transformer_engine]",
                 .values = kImplementations},
    NamingChoice{.name = "expert_names",
                 .purpose = "How experts are named [grouped]",
                 .values = kExpertNames},
    NamingChoice{.name = "further_names",
                 .purpose = "What the layer inside one that predicts further tokens is called "
                            "[transformer_layer; Megatron-Core 0.19: mtp_model_layer]",
                 .values = kFurtherNames}};

constexpr std::array kCoreChoices = {
    NamingChoice{.name = "transformer_impl",
                 .purpose = "The layers that name the parameters [transformer_engine]",
                 .values = kImplementations},
    NamingChoice{.name = "layer_keys",
                 .purpose = "Whether layers are stacked in one tensor [stacked if all are alike]",
                 .values = kLayerKeys}};

constexpr std::array kLiveChoices = {
    NamingChoice{.name = "expert_layout",
                 .purpose = "How experts are stored [fused, as the live modules have them]",
                 .values = kLiveLayouts}};

constexpr std::array<KnownNaming, 4> kNamings = {
    {{.name = "hf", .word = "hf", .choices = kPublishedChoices},
     {.name = "fsdp_dtensor", .word = "fsdp", .choices = kMegatronChoices, .is_of_megatron = true},
     {.name = "torch_dist", .word = "torch-dist", .choices = kCoreChoices, .is_of_megatron = true},
     {.name = "fsdp2", .word = "fsdp2", .choices = kLiveChoices}}};

}  // namespace

std::string OptionOf(std::string_view choice) {
  std::string option = "--" + std::string(choice);
  std::ranges::replace(option, '_', '-');
  return option;
}

std::span<const KnownNaming> KnownNamings() { return kNamings; }

const KnownNaming& PublishedNaming() { return kNamings.front(); }

const KnownNaming* FindNaming(std::string_view name) {
  const auto found = std::ranges::find(kNamings, name, &KnownNaming::name);
  return found == kNamings.end() ? nullptr : &*found;
}

Result<const KnownNaming*> FindNamingByWord(std::string_view word) {
  const auto found = std::ranges::find(kNamings, word, &KnownNaming::word);
  if (found != kNamings.end()) return &*found;
  std::string known;
  for (const KnownNaming& naming : kNamings) {
    const bool is_last = &naming == &kNamings.back();
    known += (known.empty() ? "" : is_last ? " or " : ", ") + std::string(naming.word);
  }
  return Error(ErrorKind::kUsage, "unknown naming").Actual(Quote(word)).Expected(known);
}

}  // namespace ckpt
