#include "trainer/bench/bench_model.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/text_number.h"
#include "trainer/bench/internal/counter_random.h"

namespace ckpt::train {
namespace {

// A decoder with per-head norms on queries and keys, rotary positions and no biases.
struct Shape {
  std::string_view name;
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t vocab;
  std::int64_t ffn;  // of the dense layer, or of one expert
  std::int64_t experts;
  std::int64_t topk;
  bool tied;
};

constexpr std::int64_t kHeadDim = 128;
constexpr std::array kShapes = {
    Shape{"tiny", 2, 256, 4, 2, 1024, 512, 0, 0, true},
    Shape{"tiny-moe", 2, 256, 4, 2, 1024, 128, 16, 4, false},
    Shape{"d1", 28, 1024, 16, 8, 151936, 3072, 0, 0, true},
    Shape{"d2", 28, 2048, 16, 8, 151936, 6144, 0, 0, true},
    Shape{"m1", 24, 1024, 16, 8, 32768, 640, 64, 8, false},
    Shape{"m2", 16, 2048, 16, 16, 50304, 1024, 64, 8, false},
    Shape{"m3", 48, 2048, 32, 4, 151936, 768, 128, 8, false},
};

// Where the elements of one row of a parameter stand in the other model's tensor.
struct Place {
  std::string name;        // of the tensor
  std::int64_t first_row;  // of the tensor, that the parameter's row 0 is, unless `is_qkv`
  bool is_qkv = false;     // rows are in another order
};

std::optional<Place> PlaceOf(const trainer::ParamSpec& spec) {
  static constexpr std::pair<std::string_view, std::string_view> kOfRoot[] = {
      {"embedding.word_embeddings.weight", "embed.weight"},
      {"output_layer.weight", "head.weight"},
  };
  static constexpr std::pair<std::string_view, std::string_view> kOfLayer[] = {
      {"self_attention.linear_proj.weight", "out.weight"},
      {"mlp.linear_fc1.weight", "gate_up.weight"},
      {"mlp.linear_fc2.weight", "down.weight"},
      {"mlp.router.weight", "router.weight"},
  };
  std::string_view rest = spec.name;
  for (const auto& [ours, theirs] : kOfRoot) {
    if (rest == ours) return Place{.name = std::string(theirs), .first_row = 0};
  }
  if (!TakePrefix("decoder.layers.", rest)) return {};
  const std::optional<std::int64_t> layer = TakeNumber<std::int64_t>(rest);
  if (!layer || !TakePrefix(".", rest)) return {};
  const std::string prefix = "blocks." + std::to_string(*layer) + ".";
  for (const auto& [ours, theirs] : kOfLayer) {
    if (rest == ours) return Place{.name = prefix + std::string(theirs), .first_row = 0};
  }
  if (rest == "self_attention.linear_qkv.weight") {
    return Place{.name = prefix + "qkv.weight", .first_row = 0, .is_qkv = true};
  }
  // One tensor holds a projection of all experts.
  for (const auto& [ours, theirs] : {std::pair<std::string_view, std::string_view>{
                                         "mlp.experts.linear_fc1.weight", "experts.gate_up"},
                                     {"mlp.experts.linear_fc2.weight", "experts.down"}}) {
    std::string_view expert = rest;
    if (!TakePrefix(ours, expert)) continue;
    return Place{.name = prefix + std::string(theirs),
                 .first_row = TakeNumber<std::int64_t>(expert).value_or(0) * spec.shape.front()};
  }
  return {};
}

// The row of a tensor with all queries, then keys, then values, for row `row` of one that has, for
// each key/value head, its queries, its key and its value.
std::int64_t QkvRow(const trainer::ModelConfig& config, std::int64_t row) {
  const std::int64_t dim = config.kv_channels;
  const std::int64_t queries = config.num_attention_heads / config.num_query_groups * dim;
  const std::int64_t group = row / (queries + 2 * dim);
  const std::int64_t at = row % (queries + 2 * dim);
  if (at < queries) return group * queries + at;
  const std::int64_t keys = config.num_attention_heads * dim;
  if (at < queries + dim) return keys + group * dim + at - queries;
  return keys + config.num_query_groups * dim + group * dim + at - queries - dim;
}

}  // namespace

std::vector<std::string_view> BenchModelNames() {
  std::vector<std::string_view> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

std::optional<layout::Configuration> BenchSettings(std::string_view model) {
  const auto* const shape = std::ranges::find(kShapes, model, &Shape::name);
  if (shape == kShapes.end()) return {};
  layout::Configuration settings = {
      {"num_layers", shape->layers},
      {"hidden_size", shape->hidden},
      {"num_attention_heads", shape->heads},
      {"num_query_groups", shape->kv_heads},
      {"kv_channels", kHeadDim},
      {"vocab_size", shape->vocab},
      {"padded_vocab_size", shape->vocab},
      {"untie_embeddings_and_output_weights", !shape->tied},
      {"normalization", "RMSNorm"},
      {"norm_epsilon", 1e-6},
      {"ffn_hidden_size", shape->ffn},
      {"swiglu", true},
      {"add_bias_linear", false},
      {"qk_layernorm", true},
      {"position_embedding_type", "rope"},
      {"rotary_base", 1e6},
      {"lr", 3e-4},
      {"lr_decay_style", "constant"},
      {"adam_beta2", 0.95},
      {"weight_decay", 0.1},
      {"clip_grad", 1.0},
  };
  if (shape->experts == 0) return settings;
  settings["num_experts"] = shape->experts;
  settings["moe_ffn_hidden_size"] = shape->ffn;
  settings["moe_router_topk"] = shape->topk;
  settings["moe_router_load_balancing_type"] = "aux_loss";
  // The other trainer takes the mean over the layers.
  settings["moe_aux_loss_coeff"] = 0.001 / static_cast<double>(shape->layers);
  return settings;
}

Status FillBenchWeights(const trainer::ModelConfig& config, std::uint32_t seed,
                        const trainer::ParamSpec& spec, std::int64_t row_begin, std::int64_t rows,
                        std::span<float> values) {
  if (spec.shape.size() == 1) {
    std::ranges::fill(values, static_cast<float>(spec.init.constant));
    return OkStatus();
  }
  const std::optional<Place> place = PlaceOf(spec);
  if (!place) {
    return Error(ErrorKind::kUnsupported, "the benchmark has no weights for this parameter")
        .Tensor(spec.name)
        .Hint("choose one of the benchmark's models");
  }
  const CounterRandom random(seed, place->name);
  const auto row_elems = static_cast<std::int64_t>(values.size()) / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t ours = row_begin + row;
    const std::int64_t theirs = place->is_qkv ? QkvRow(config, ours) : place->first_row + ours;
    for (std::int64_t i = 0; i < row_elems; ++i) {
      values[static_cast<std::size_t>(row * row_elems + i)] =
          random.Weight(static_cast<std::uint64_t>(theirs * row_elems + i));
    }
  }
  return OkStatus();
}

trainer::HostMicroBatch BenchTokens::At(std::int64_t step, int rank) const {
  const CounterRandom random(seed, "tokens");
  trainer::HostMicroBatch batch;
  batch.batch = rows_of_rank;
  batch.seq = seq;
  const std::int64_t first_row = (step * num_ranks + rank) * rows_of_rank;
  for (std::int64_t row = first_row; row < first_row + rows_of_rank; ++row) {
    const auto token = [&](std::int64_t column) {
      return static_cast<std::int32_t>(
          random.Bits(static_cast<std::uint64_t>(row * (seq + 1) + column)) % vocab_size);
    };
    for (std::int64_t column = 0; column < seq; ++column) {
      batch.tokens.push_back(token(column));
      batch.labels.push_back(token(column + 1));
    }
  }
  return batch;
}

Result<std::vector<std::int32_t>> BalancedExperts(std::uint32_t seed, std::int64_t tokens,
                                                  std::int64_t experts, std::int64_t topk) {
  if (experts % topk != 0 || tokens % (experts / topk) != 0) {
    return Error(ErrorKind::kUsage, "the experts cannot share the tokens evenly")
        .Expected(
            "experts that are a multiple of those a token has, and tokens that are a multiple "
            "of the quotient")
        .Actual(fmt::format("{} experts, {} a token, {} tokens", experts, topk, tokens));
  }
  const CounterRandom random(seed, "routing");
  std::vector<std::int32_t> table(static_cast<std::size_t>(tokens * topk));
  for (std::size_t first = 0; first < table.size(); first += static_cast<std::size_t>(experts)) {
    const std::span row = std::span(table).subspan(first, static_cast<std::size_t>(experts));
    std::iota(row.begin(), row.end(), 0);
    std::ranges::stable_sort(row, {}, [&](std::int32_t expert) {
      return random.Bits(first + static_cast<std::uint64_t>(expert));
    });
  }
  return table;
}

}  // namespace ckpt::train
