#include "formats/torch_dist/internal/weight_key.h"

#include "core/base/text_number.h"

namespace ckpt::torch_dist {
namespace {

constexpr std::string_view kInLayers = ".layers.";
constexpr std::string_view kInExperts = ".mlp.experts.experts.";

// Where the word behind `before` begins; nothing if there is none.
std::optional<std::size_t> FindBehind(std::string_view key, std::string_view before) {
  const std::size_t found = key.find(before);
  if (found == std::string_view::npos || found + before.size() >= key.size()) return std::nullopt;
  return found + before.size();
}

}  // namespace

KeyForm FormOfKey(std::string_view key) {
  KeyForm form = {.name = std::string(key), .layer = {}};
  const std::optional<std::size_t> expert = FindBehind(key, kInExperts);
  form.stacks_experts = expert && !IsDigit(key[*expert]);
  const std::optional<std::size_t> layer = FindBehind(key, kInLayers);
  if (!layer) return form;
  form.stacks_layers = !IsDigit(key[*layer]);
  if (form.stacks_layers) return form;
  std::string_view rest = key.substr(*layer);
  const std::optional<std::int64_t> number = TakeNumber<std::int64_t>(rest);
  if (!number || !TakePrefix(".", rest)) return form;
  form.layer = number;
  form.name.erase(*layer, key.size() - rest.size() - *layer);
  return form;
}

bool MayBeGated(std::string_view key) {
  return key.ends_with(".linear_fc1.weight") || key.ends_with(".linear_fc1.bias");
}

bool IsLatentProjection(std::string_view key) {
  return key.ends_with(".self_attention.linear_q_down_proj.weight") ||
         key.ends_with(".self_attention.linear_kv_down_proj.weight");
}

bool IsOfExperts(std::string_view key) {
  return key.find(".mlp.experts.") != std::string_view::npos;
}

}  // namespace ckpt::torch_dist
