#include "formats/torch_dist/internal/weight_key.h"

#include <charconv>
#include <system_error>

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

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

KeyForm FormOfKey(std::string_view key) {
  KeyForm form = {.name = std::string(key), .layer = {}};
  const std::optional<std::size_t> expert = FindBehind(key, kInExperts);
  form.stacks_experts = expert && !IsDigit(key[*expert]);
  const std::optional<std::size_t> layer = FindBehind(key, kInLayers);
  if (!layer) return form;
  form.stacks_layers = !IsDigit(key[*layer]);
  if (form.stacks_layers) return form;
  std::int64_t number = 0;
  const char* const end = key.data() + key.size();
  const auto [rest, error] = std::from_chars(key.data() + *layer, end, number);
  if (error != std::errc() || rest == end || *rest != '.') return form;
  form.layer = number;
  form.name.erase(*layer, static_cast<std::size_t>(rest + 1 - key.data()) - *layer);
  return form;
}

bool MayBeGated(std::string_view key) {
  return key.ends_with(".linear_fc1.weight") || key.ends_with(".linear_fc1.bias");
}

bool IsOfExperts(std::string_view key) {
  return key.find(".mlp.experts.") != std::string_view::npos;
}

}  // namespace ckpt::torch_dist
