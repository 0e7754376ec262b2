#include "formats/mp_rank/internal/global_name.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/text_number.h"

namespace ckpt::mp_rank {
namespace {

constexpr std::string_view kModel = "model";
constexpr std::string_view kLayers = "decoder.layers.";
constexpr std::string_view kExperts = ".mlp.experts.";
// More than any model has, and far from overflowing.
constexpr std::int64_t kMaxNumber = 1 << 20;

// A number in a name.
struct Numbered {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int64_t number = 0;
};

// The decimal digits that start at `begin`, if there are some and no absurd number of them.
std::optional<Numbered> NumberAt(std::string_view name, std::size_t begin) {
  if (begin >= name.size() || !IsDigit(name[begin])) return std::nullopt;
  Numbered found{.begin = begin};
  const auto [end, error] =
      std::from_chars(name.data() + begin, name.data() + name.size(), found.number);
  found.end = static_cast<std::size_t>(end - name.data());
  // A number that does not fit is as wrong as one that is too large.
  if (error != std::errc()) found.number = kMaxNumber + 1;
  return found;
}

Status AbsurdNumber(std::string_view name) {
  return Error(ErrorKind::kBadMetadata, "a name has an absurd number")
      .Tensor(name)
      .Expected("at most " + std::to_string(kMaxNumber));
}

std::optional<Numbered> LayerIn(std::string_view name) {
  return name.starts_with(kLayers) ? NumberAt(name, kLayers.size()) : std::nullopt;
}

// Of a sequence of experts ("local_experts.3.linear_fc1.weight") or of grouped ones
// ("linear_fc1.weight3").
std::optional<Numbered> ExpertIn(std::string_view name) {
  const std::size_t experts = name.find(kExperts);
  if (experts == std::string_view::npos) return std::nullopt;
  const std::size_t begin = experts + kExperts.size();
  constexpr std::array<std::string_view, 5> kBefore = {"local_experts.", "linear_fc1.weight",
                                                       "linear_fc2.weight", "linear_fc1.bias",
                                                       "linear_fc2.bias"};
  for (const std::string_view before : kBefore) {
    if (name.substr(begin).starts_with(before)) return NumberAt(name, begin + before.size());
  }
  return std::nullopt;
}

std::string WithNumber(std::string_view name, const Numbered& at, std::int64_t number) {
  return std::string(name.substr(0, at.begin)) + std::to_string(number) +
         std::string(name.substr(at.end));
}

}  // namespace

std::optional<LocalName> ParseLocalName(std::string_view key) {
  if (!key.starts_with(kModel)) return std::nullopt;
  LocalName local;
  std::size_t dot = kModel.size();
  if (const auto part = NumberAt(key, dot)) {
    if (part->number > kMaxNumber) return std::nullopt;
    local.part = part->number;
    dot = part->end;
  }
  if (dot >= key.size() || key[dot] != '.') return std::nullopt;
  local.name = key.substr(dot + 1);
  return local;
}

Status LayerOffsets::Note(std::int64_t stage, const LocalName& local) {
  std::int64_t& layers = layers_[{local.part, stage}];
  const std::optional<Numbered> layer = LayerIn(local.name);
  if (!layer) return OkStatus();
  if (layer->number > kMaxNumber) return AbsurdNumber(local.name);
  layers = std::max(layers, layer->number + 1);
  return OkStatus();
}

std::int64_t LayerOffsets::Finish() {
  std::int64_t first = 0;
  for (auto& [at, layers] : layers_) {
    const std::int64_t count = layers;
    layers = first;
    first += count;
  }
  return first;
}

std::string LayerOffsets::GlobalName(std::int64_t stage, const LocalName& local) const {
  const std::optional<Numbered> layer = LayerIn(local.name);
  if (!layer) return std::string(local.name);
  return WithNumber(local.name, *layer, layer->number + layers_.at({local.part, stage}));
}

Result<std::string> WithExpertNumber(std::string name, std::int64_t first_expert) {
  const std::optional<Numbered> expert = ExpertIn(name);
  if (!expert) return name;
  if (expert->number > kMaxNumber || first_expert > kMaxNumber) return AbsurdNumber(name);
  return WithNumber(name, *expert, expert->number + first_expert);
}

bool IsOfExpert(std::string_view name) { return name.find(kExperts) != std::string_view::npos; }

bool NumbersExpert(std::string_view name) { return ExpertIn(name).has_value(); }

}  // namespace ckpt::mp_rank
