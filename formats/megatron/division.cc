#include "formats/megatron/division.h"

#include <algorithm>
#include <array>

#include "core/base/checked_math.h"
#include "core/base/glob.h"

namespace ckpt::megatron {
namespace {

struct Rule {
  std::string_view glob;
  Division division;
};

// The first that fits. Groups of query heads with their keys and values follow each other, so rows
// of linear_qkv are cut like any others.
constexpr std::array kRules = {
    Rule{"embedding.word_embeddings.weight", Division::kRows},
    Rule{"embedding.position_embeddings.weight", Division::kWhole},
    Rule{"output_layer.weight", Division::kRows},
    Rule{"output_layer.bias", Division::kRows},
    Rule{"*layernorm.weight", Division::kWhole},
    Rule{"*layernorm.bias", Division::kWhole},
    Rule{"*.layer_norm_weight", Division::kWhole},
    Rule{"*.layer_norm_bias", Division::kWhole},
    Rule{"mtp.layers.*.enorm.*", Division::kWhole},
    Rule{"mtp.layers.*.hnorm.*", Division::kWhole},
    Rule{"mtp.layers.*.eh_proj.weight", Division::kRows},
    Rule{"*.self_attention.linear_qkv.weight", Division::kRows},
    Rule{"*.self_attention.linear_qkv.bias", Division::kRows},
    Rule{"*.self_attention.linear_q_proj.weight", Division::kRows},
    Rule{"*.self_attention.linear_q_up_proj.weight", Division::kRows},
    Rule{"*.self_attention.linear_kv_up_proj.weight", Division::kRows},
    Rule{"*.self_attention.core_attention.softmax_offset", Division::kRows},
    Rule{"*.self_attention.linear_proj.weight", Division::kColumns},
    Rule{"*.self_attention.linear_proj.bias", Division::kWhole},
    Rule{"*.mlp.router.weight", Division::kWhole},
    Rule{"*.mlp.router.bias", Division::kWhole},
    Rule{"*.mlp.router.expert_bias", Division::kWhole},
    Rule{"*.mlp.shared_experts.gate_weight", Division::kWhole},
    Rule{"*.linear_fc1.weight*", Division::kHalves},
    Rule{"*.linear_fc1.bias*", Division::kHalves},
    Rule{"*.linear_fc2.weight*", Division::kColumns},
    Rule{"*.linear_fc2.bias*", Division::kWhole},
};

Status WrongPart(std::string_view expected, DimsView part) {
  return Error(ErrorKind::kShapeMismatch, "a tensor-parallel rank cannot have such a part")
      .Expected(expected)
      .Actual(FormatDims(part));
}

}  // namespace

std::optional<Division> DivisionOf(std::string_view name, bool is_gated) {
  const auto found =
      std::ranges::find_if(kRules, [&](const Rule& rule) { return MatchesGlob(rule.glob, name); });
  if (found == kRules.end()) return std::nullopt;
  if (found->division == Division::kHalves && !is_gated) return Division::kRows;
  return found->division;
}

Result<PlacedPiece> PlacePart(Division division, DimsView part, std::int64_t rank,
                              std::int64_t ranks) {
  PlacedPiece placed{.shape = Dims(part.begin(), part.end()), .rows = {}};
  if (division == Division::kWhole || ranks == 1) {
    placed.rows.push_back({.box = WholeBox(part)});
    return placed;
  }
  const std::size_t dim = division == Division::kColumns ? 1 : 0;
  if (part.size() <= dim) return WrongPart(dim == 0 ? "a dim" : "two dims", part);
  // The part's own size is valid, so no product of a row number with `ranks` is larger than this.
  if (!CheckedMul(part[dim], ranks, &placed.shape[dim])) {
    return Error(ErrorKind::kResource, "the size of the whole tensor overflows")
        .Actual(FormatDims(part));
  }
  const std::int64_t halves = division == Division::kHalves ? 2 : 1;
  if (part[dim] % halves != 0) return WrongPart("as many rows of the gate as of up", part);
  const std::int64_t size = part[dim] / halves;
  for (std::int64_t half = 0; half < halves; ++half) {
    Box box = WholeBox(part);
    box.offsets[dim] = half * size * ranks + rank * size;
    box.sizes[dim] = size;
    placed.rows.push_back({.first_row = half * size, .box = std::move(box)});
  }
  return placed;
}

}  // namespace ckpt::megatron
