#include "trainer/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainer/model/internal/idle_model_settings.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kMaxLayers = 100'000;
constexpr std::int64_t kMaxExperts = 1 << 20;
constexpr double kMaxWeights = 1e18;  // so that sizes of tensors and of all together do not wrap

// The factor by which yarn sharpens attention over `factor` times more positions.
double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void ReadRope(SettingsReader& settings, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.base = settings.Number("rotary_base", rope.base, 1e-6);
  rope.percent = settings.Number("rotary_percent", rope.percent);
  if (rope.percent <= 0 || rope.percent > 1) {
    settings.Refuse("rotary_percent", "is not a share of a head", "above 0, at most 1");
  }
  rope.interleaved = settings.Flag("rotary_interleaved", rope.interleaved);
  rope.scaling = settings.Word<RopeScaling>("rope_scaling_type", {{"none", RopeScaling::kNone},
                                                                  {"linear", RopeScaling::kLinear},
                                                                  {"llama3", RopeScaling::kLlama3},
                                                                  {"yarn", RopeScaling::kYarn}});
  rope.factor = settings.Number("rotary_scaling_factor", rope.factor, 1e-6);
  rope.original_max_positions =
      settings.Number("original_max_position_embeddings", rope.original_max_positions);
  rope.low_freq_factor = settings.Number("low_freq_factor", rope.low_freq_factor, 1e-6);
  rope.high_freq_factor = settings.Number("high_freq_factor", rope.high_freq_factor, 1e-6);
  rope.beta_fast = settings.Number("beta_fast", rope.beta_fast, 1e-6);
  rope.beta_slow = settings.Number("beta_slow", rope.beta_slow, 1e-6);
  rope.truncate = settings.Flag("yarn_correction_range_round_to_int", rope.truncate);

  const bool needs_origin =
      rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn;
  if (needs_origin && rope.original_max_positions <= 0) {
    settings.Refuse("original_max_position_embeddings", "is needed to scale positions", "above 0");
  }
  if (rope.scaling == RopeScaling::kLlama3 && rope.low_freq_factor >= rope.high_freq_factor) {
    settings.Refuse("low_freq_factor", "is not below high_freq_factor");
  }

  const std::optional<double> mscale = settings.OptionalNumber("mscale");
  const std::optional<double> mscale_all_dim = settings.OptionalNumber("mscale_all_dim");
  const std::optional<double> attention_factor = settings.OptionalNumber("rope_attention_factor");
  const bool has_both = mscale.value_or(0) != 0 && mscale_all_dim.value_or(0) != 0;
  if (rope.scaling == RopeScaling::kYarn) {
    rope.attention_factor = attention_factor ? *attention_factor
                            : has_both       ? YarnMagnitude(rope.factor, *mscale) /
                                             YarnMagnitude(rope.factor, *mscale_all_dim)
                                       : YarnMagnitude(rope.factor, 1);
  }
  const bool sharpens = config.mla && rope.scaling != RopeScaling::kNone && mscale_all_dim;
  const double head = static_cast<double>(config.kv_channels);
  if (sharpens && *mscale_all_dim != 0) {
    const double magnitude = YarnMagnitude(rope.factor, *mscale_all_dim);
    config.softmax_scale = magnitude * magnitude / std::sqrt(head);
  }
  config.softmax_scale = settings.Number("softmax_scale", config.softmax_scale);
}

void ReadAttention(SettingsReader& settings, ModelConfig& config) {
  config.num_attention_heads = settings.RequiredInt("num_attention_heads");
  config.num_query_groups = settings.Int("num_query_groups", config.num_attention_heads, 1);
  const bool is_latent = settings.Flag("multi_latent_attention", false);
  config.qkv_bias = settings.Flag("add_qkv_bias", !is_latent && config.mlp_bias);
  config.attention_output_bias =
      settings.Flag("add_attention_output_bias", !is_latent && config.mlp_bias);
  config.qk_layernorm = settings.Flag("qk_layernorm", false);
  config.qk_layernorm_over_heads = settings.Flag("qk_layernorm_over_heads", false);

  MlaConfig mla;
  mla.q_lora_rank = settings.Int("q_lora_rank", 0);
  for (const auto& [name, field] :
       {std::pair("kv_lora_rank", &mla.kv_lora_rank), std::pair("qk_head_dim", &mla.qk_head_dim),
        std::pair("qk_pos_emb_head_dim", &mla.qk_pos_emb_head_dim),
        std::pair("v_head_dim", &mla.v_head_dim)}) {
    *field = is_latent ? settings.RequiredInt(name) : settings.Int(name, 0);
  }
  mla.down_bias = settings.Flag("add_latent_bias", false);
  mla.norm_epsilon = settings.Number("latent_norm_epsilon", config.norm_epsilon);
  if (is_latent) config.mla = mla;

  // Megatron would norm these with LayerNorm, too, which the trainer does not.
  const bool norms_more = config.qk_layernorm || is_latent || config.post_layernorm;
  if (norms_more && config.normalization == Normalization::kLayerNorm) {
    settings.Refuse("normalization",
                    "is not that of norms of queries, keys and latents, and of norms behind",
                    "RMSNorm");
  }

  if (is_latent) {
    config.kv_channels = mla.qk_head_dim + mla.qk_pos_emb_head_dim;
    if (settings.Int("kv_channels", config.kv_channels) != config.kv_channels) {
      settings.Refuse("kv_channels", "is not qk_head_dim + qk_pos_emb_head_dim",
                      std::to_string(config.kv_channels));
    }
    if (config.num_query_groups != config.num_attention_heads) {
      settings.Refuse("num_query_groups", "is not num_attention_heads in latent attention",
                      std::to_string(config.num_attention_heads));
    }
    if (config.qkv_bias) {
      settings.Refuse("add_qkv_bias", "is not allowed in latent attention", "false");
    }
  } else {
    if (mla.down_bias) settings.Refuse("add_latent_bias", "needs latent attention", "false");
    // After an earlier error, the sizes may be defaults, so they are not compared.
    if (!settings.Has("kv_channels") && settings.ok() &&
        config.hidden_size % config.num_attention_heads != 0) {
      settings.Refuse("kv_channels", "is missing, and hidden_size is not a multiple of the heads");
    }
    config.kv_channels =
        settings.Int("kv_channels",
                     std::max<std::int64_t>(config.hidden_size / config.num_attention_heads, 1), 1);
    if (config.num_attention_heads % config.num_query_groups != 0) {
      settings.Refuse("num_query_groups", "does not divide num_attention_heads",
                      fmt::format("a divisor of {}", config.num_attention_heads));
    }
  }
}

// Reads which layers see only a window: all, all except every n-th, or as listed.
void ReadWindow(SettingsReader& settings, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.num_layers);
  config.window_size.assign(layers, 0);
  const auto window = settings.IntList("window_size");
  const bool has_list = settings.HasList("window_attn_skip_freq");
  const auto pattern = has_list ? settings.IntList("window_attn_skip_freq")
                                : std::optional<std::vector<std::int64_t>>();
  const std::int64_t every = has_list ? 0 : settings.Int("window_attn_skip_freq", 0, 1);
  if (pattern && pattern->size() != layers) {
    settings.Refuse("window_attn_skip_freq", "does not have a number for every layer",
                    fmt::format("{} numbers", layers));
    return;
  }
  if (!window) return;
  if (window->size() != 2 || (*window)[1] != 0) {
    settings.Refuse("window_size", "is not a causal window", "[keys before the query, 0]");
    return;
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const bool is_windowed = pattern     ? (*pattern)[layer] != 0
                             : every > 0 ? (static_cast<std::int64_t>(layer) + 1) % every != 0
                                         : true;
    if (is_windowed) config.window_size[layer] = (*window)[0] + 1;
  }
}

void ReadRouter(SettingsReader& settings, MoeConfig& moe) {
  RouterForm& router = moe.router;
  router.topk = settings.Int("moe_router_topk", 2, 1);
  const bool is_sigmoid =
      settings.Word<bool>("moe_router_score_function", {{"softmax", false}, {"sigmoid", true}});
  const bool before = settings.Flag("moe_router_pre_softmax", false);
  router.score = is_sigmoid ? ScoreFunction::kSigmoid
                 : before   ? ScoreFunction::kSoftmax
                            : ScoreFunction::kSoftmaxTopK;
  // The weights of the chosen experts sum to one. Megatron always does this for sigmoid scores.
  router.normalize = settings.Flag("moe_router_normalize_topk", is_sigmoid && router.topk > 1);
  router.scaling = settings.Number("moe_router_topk_scaling_factor", 1);
  router.num_groups = settings.Int("moe_router_num_groups", 1, 1);
  router.group_topk = settings.Int("moe_router_group_topk", router.num_groups, 1);
  router.group_score = settings.Word<GroupScore>(
      "moe_router_group_score",
      {{"top_two_sum", GroupScore::kTopTwoSum}, {"max", GroupScore::kMax}});
  if (moe.num_experts == 0) return;
  if (moe.num_experts % router.num_groups != 0) {
    settings.Refuse("moe_router_num_groups", "does not divide num_experts",
                    fmt::format("a divisor of {}", moe.num_experts));
  } else if (router.group_topk > router.num_groups) {
    settings.Refuse("moe_router_group_topk", "is more than the number of groups",
                    fmt::format("at most {}", router.num_groups));
  } else if (router.num_groups > 1 && router.group_score == GroupScore::kTopTwoSum &&
             moe.num_experts / router.num_groups < 2) {
    settings.Refuse("moe_router_num_groups",
                    "leaves groups of one expert, which have no two best scores");
  } else if (router.topk > moe.num_experts / router.num_groups * router.group_topk) {
    settings.Refuse(
        "moe_router_topk", "is more than the number of eligible experts",
        fmt::format("at most {}", moe.num_experts / router.num_groups * router.group_topk));
  }
  if (router.num_groups > 1 && router.score == ScoreFunction::kSoftmaxTopK) {
    settings.Refuse("moe_router_pre_softmax", "is needed to compare groups", "true");
  }
}

void ReadMoe(SettingsReader& settings, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.num_layers);
  MoeConfig moe;
  moe.num_experts = settings.Int("num_experts", 0);
  if (moe.num_experts > kMaxExperts) {
    settings.Refuse("num_experts", "is too large", fmt::format("at most {}", kMaxExperts));
    moe.num_experts = kMaxExperts;
  }
  moe.ffn_hidden_size = settings.Int("moe_ffn_hidden_size", config.ffn_hidden_size, 1);
  moe.shared_expert_ffn_hidden_size = settings.Int("moe_shared_expert_intermediate_size", 0);
  moe.shared_expert_gate = settings.Flag("moe_shared_expert_gate", false);
  if (moe.shared_expert_gate && config.mlp_bias) {
    settings.Refuse("moe_shared_expert_gate", "does not go with add_bias_linear", "false");
  }
  if (moe.num_experts > 0 || settings.Has("moe_router_topk")) ReadRouter(settings, moe);
  moe.expert_bias = settings.Flag("moe_router_enable_expert_bias", false);
  if (moe.expert_bias && moe.router.score != ScoreFunction::kSigmoid) {
    settings.Refuse("moe_router_enable_expert_bias", "works only with sigmoid scores", "false");
  }
  moe.bias_update_rate = settings.Number("moe_router_bias_update_rate", 0);
  moe.aux.kind = settings.Word<AuxLoss>("moe_router_load_balancing_type",
                                        {{"none", AuxLoss::kNone},
                                         {"aux_loss", AuxLoss::kBatch},
                                         {"seq_aux_loss", AuxLoss::kSequence}});
  moe.aux.coefficient = settings.Number("moe_aux_loss_coeff", 0);
  moe.aux.z_coefficient = settings.Number("moe_z_loss_coeff", 0);
  moe.capacity_factor = settings.OptionalNumber("moe_expert_capacity_factor", 1e-6);
  moe.drop_policy = settings.Word<DropPolicy>(
      "moe_token_drop_policy",
      {{"probs", DropPolicy::kProbability}, {"position", DropPolicy::kPosition}});
  moe.pad_to_capacity = settings.Flag("moe_pad_expert_input_to_capacity", false);
  if (moe.pad_to_capacity && !moe.capacity_factor) {
    settings.Refuse("moe_pad_expert_input_to_capacity", "needs moe_expert_capacity_factor");
  }

  // As in Megatron, every n-th layer counts from the first.
  const bool has_list = settings.HasList("moe_layer_freq");
  const auto pattern =
      has_list ? settings.IntList("moe_layer_freq") : std::optional<std::vector<std::int64_t>>();
  const std::int64_t every = has_list ? 1 : settings.Int("moe_layer_freq", 1, 1);
  config.is_moe_layer.assign(layers, false);
  if (pattern && pattern->size() != layers) {
    settings.Refuse("moe_layer_freq", "does not have a number for every layer",
                    fmt::format("{} numbers", layers));
    return;
  }
  if (moe.num_experts == 0) return;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    config.is_moe_layer[layer] =
        pattern ? (*pattern)[layer] != 0 : static_cast<std::int64_t>(layer) % every == 0;
  }
  config.moe = moe;
}

// As many weights as the model has or up to a few times more, by numbers that do not wrap.
double WeightsAtMost(const ModelConfig& c) {
  const auto number = [](std::int64_t size) { return static_cast<double>(size); };
  const MlaConfig mla = c.mla.value_or(MlaConfig());
  const MoeConfig moe = c.moe.value_or(MoeConfig());
  const double hidden = number(c.hidden_size) + 1;
  const double latents =
      number(mla.q_lora_rank) + number(mla.kv_lora_rank) + number(mla.qk_pos_emb_head_dim);
  const double heads =
      (number(c.num_attention_heads) + number(c.num_query_groups)) *
      (number(c.kv_channels) + number(mla.qk_head_dim) + number(mla.v_head_dim) + 1);
  const double ffn = number(c.ffn_hidden_size) + number(moe.shared_expert_ffn_hidden_size) +
                     number(moe.num_experts) * (number(moe.ffn_hidden_size) + 1);
  const double of_layer = 4 * (hidden + latents) * (heads + latents + 1) + 4 * hidden * (ffn + 2);
  return number(c.num_layers) * of_layer +
         hidden * (2 * number(c.padded_vocab_size) + number(c.learned_positions) + 2);
}

// Weights of a linear map from `from` elements to `to`, and its bias.
std::int64_t CountLinear(std::int64_t from, std::int64_t to, bool has_bias) {
  return from * to + (has_bias ? to : 0);
}

std::int64_t CountQkNorms(const ModelConfig& c) {
  if (!c.qk_layernorm) return 0;
  const std::int64_t heads =
      c.qk_layernorm_over_heads ? c.num_attention_heads + c.num_query_groups : 2;
  return heads * c.kv_channels;
}

std::int64_t CountAttention(const ModelConfig& c) {
  const std::int64_t heads = c.num_attention_heads;
  if (c.mla) {
    const MlaConfig& m = *c.mla;
    const std::int64_t queries = heads * c.kv_channels;
    const std::int64_t from_queries = m.q_lora_rank == 0
                                          ? c.hidden_size * queries
                                          : CountLinear(c.hidden_size, m.q_lora_rank, m.down_bias) +
                                                (1 + queries) * m.q_lora_rank;
    return from_queries +
           CountLinear(c.hidden_size, m.kv_lora_rank + m.qk_pos_emb_head_dim, m.down_bias) +
           m.kv_lora_rank * (1 + heads * (m.qk_head_dim + m.v_head_dim)) +
           CountLinear(heads * m.v_head_dim, c.hidden_size, c.attention_output_bias);
  }
  const std::int64_t rows = (heads + 2 * c.num_query_groups) * c.kv_channels;
  return CountLinear(c.hidden_size, rows, c.qkv_bias) +
         CountLinear(heads * c.kv_channels, c.hidden_size, c.attention_output_bias) +
         CountQkNorms(c);
}

std::int64_t CountMlp(const ModelConfig& c, std::int64_t ffn, bool has_bias) {
  const std::int64_t halves = c.activation == Activation::kSwiGlu ? 2 : 1;
  return CountLinear(c.hidden_size, halves * ffn, has_bias) +
         CountLinear(ffn, c.hidden_size, has_bias);
}

std::int64_t CountShared(const ModelConfig& c) {
  const std::int64_t ffn = c.moe->shared_expert_ffn_hidden_size;
  if (ffn == 0) return 0;
  return CountMlp(c, ffn, c.mlp_bias) + (c.moe->shared_expert_gate ? c.hidden_size : 0);
}

// Counts weights, with `experts` experts in every layer that has experts.
std::int64_t Count(const ModelConfig& c, std::int64_t experts) {
  const std::int64_t norm = (c.normalization == Normalization::kLayerNorm ? 2 : 1) * c.hidden_size;
  std::int64_t total = c.vocab_size * c.hidden_size * (c.tied_embeddings ? 1 : 2) +
                       c.learned_positions * c.hidden_size + norm;
  for (const bool is_moe : c.is_moe_layer) {
    total += 2 * norm + CountAttention(c);
    if (!is_moe) {
      total += CountMlp(c, c.ffn_hidden_size, c.mlp_bias);
      continue;
    }
    total += c.moe->num_experts * c.hidden_size +
             experts * CountMlp(c, c.moe->ffn_hidden_size, false) + CountShared(c);
  }
  return total;
}

}  // namespace

Result<ModelConfig> ParseModelConfig(const layout::Configuration& given) {
  SettingsReader settings(given);
  ModelConfig config = ReadModelConfig(settings);
  CKPT_RETURN_IF_ERROR(settings.Finish());
  return config;
}

layout::Configuration SettingsOfModel(const layout::Configuration& settings) {
  SettingsReader reader(settings);
  ReadModelConfig(reader);
  layout::Configuration model;
  for (const auto& [name, value] : settings) {
    if (reader.effective().contains(name)) model.emplace(name, value);
  }
  return model;
}

Result<ModelConfig> ReadStoredModel(const layout::Configuration& settings) {
  const layout::Configuration model = SettingsOfModel(settings);
  const layout::Configuration none_given;
  SettingsReader reader(model, &none_given);
  ModelConfig config = ReadModelConfig(reader);
  CKPT_RETURN_IF_ERROR(reader.Finish());
  return config;
}

ModelConfig ReadModelConfig(SettingsReader& settings) {
  ModelConfig config;
  config.num_layers = settings.RequiredInt("num_layers");
  if (config.num_layers > kMaxLayers) {
    settings.Refuse("num_layers", "is too large", fmt::format("at most {}", kMaxLayers));
    config.num_layers = 1;
  }
  config.hidden_size = settings.RequiredInt("hidden_size");
  config.ffn_hidden_size = settings.RequiredInt("ffn_hidden_size");
  config.vocab_size = settings.RequiredInt("vocab_size");
  config.padded_vocab_size = settings.Int("padded_vocab_size", config.vocab_size);
  if (config.padded_vocab_size < config.vocab_size) {
    settings.Refuse("padded_vocab_size", "is below vocab_size",
                    fmt::format("at least {}", config.vocab_size));
  }
  config.tied_embeddings = !settings.Flag("untie_embeddings_and_output_weights", true);
  config.normalization = settings.Word<Normalization>(
      "normalization",
      {{"RMSNorm", Normalization::kRmsNorm}, {"LayerNorm", Normalization::kLayerNorm}});
  config.norm_epsilon = settings.Number("norm_epsilon", config.norm_epsilon);
  config.post_layernorm = settings.Flag("post_layernorm", false);
  config.activation = settings.Flag("swiglu", true) ? Activation::kSwiGlu : Activation::kGelu;
  config.mlp_bias = settings.Flag("add_bias_linear", false);
  config.init_method_std = settings.Number("init_method_std", config.init_method_std);

  ReadAttention(settings, config);
  ReadRope(settings, config);
  ReadWindow(settings, config);
  ReadMoe(settings, config);

  const bool is_learned =
      settings.Word<bool>("position_embedding_type", {{"rope", false}, {"learned_absolute", true}});
  const std::int64_t positions = settings.Int("max_position_embeddings", 0);
  if (is_learned) {
    config.learned_positions = positions;
    if (positions == 0) {
      settings.Refuse("max_position_embeddings", "is needed by learned positions", "above 0");
    }
    if (config.mla) {
      settings.Refuse("position_embedding_type", "is not rotary in latent attention", "rope");
    }
  } else {
    const std::int64_t head = config.mla ? config.mla->qk_pos_emb_head_dim : config.kv_channels;
    const auto rotated = static_cast<std::int64_t>(static_cast<double>(head) * config.rope.percent);
    // If a size is missing, a default stands in its place, which is not worth a message.
    if (rotated % 2 != 0 && settings.ok()) {
      settings.Refuse(config.mla ? "qk_pos_emb_head_dim" : "kv_channels",
                      "gives an odd number of rotated elements", "an even number to rotate");
    }
  }
  if (WeightsAtMost(config) > kMaxWeights) {
    settings.Refuse("hidden_size", "and the other sizes make a model of more than 10^18 weights");
  }
  RefuseIdleModelSettings(settings, config);
  return config;
}

std::int64_t CountParameters(const ModelConfig& config) {
  return Count(config, config.moe ? config.moe->num_experts : 0);
}

std::int64_t CountActiveParameters(const ModelConfig& config) {
  return Count(config, config.moe ? config.moe->router.topk : 0);
}

}  // namespace ckpt::trainer
