// ModelConfig: the shape of a decoder, under Megatron's names.
#ifndef CKPT_TRAINER_MODEL_MODEL_CONFIG_H_
#define CKPT_TRAINER_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/layout/value.h"
#include "trainer/ops/moe_specs.h"

namespace ckpt::trainer {

enum class Normalization : std::uint8_t { kRmsNorm, kLayerNorm };
enum class Activation : std::uint8_t { kSwiGlu, kGelu };
enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  double base = 10000;
  double percent = 1;  // fraction of a head's elements that are rotated, from the first
  bool interleaved = false;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_max_positions = 0;
  double low_freq_factor = 1;   // llama3
  double high_freq_factor = 4;  // llama3
  double beta_fast = 32;        // yarn
  double beta_slow = 1;         // yarn
  bool truncate = true;         // yarn: the ends of the ramp are rounded to whole dims
  // yarn: multiplies cosine and sine. In latent attention, the square of the factor that belongs to
  // `mscale_all_dim` multiplies the softmax scale.
  double attention_factor = 1;

  bool operator==(const RopeConfig&) const = default;
};

// Latent attention (DeepSeek). Heads have qk_head_dim + qk_pos_emb_head_dim elements.
struct MlaConfig {
  std::int64_t q_lora_rank = 0;  // 0: queries are computed from the hidden state directly
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_head_dim = 0;          // elements without position
  std::int64_t qk_pos_emb_head_dim = 0;  // rotated elements
  std::int64_t v_head_dim = 0;
  bool down_bias = false;      // the projections to the latents have biases
  double norm_epsilon = 1e-6;  // of the norms of the latents

  bool operator==(const MlaConfig&) const = default;
};

struct MoeConfig {
  std::int64_t num_experts = 0;
  std::int64_t ffn_hidden_size = 0;
  RouterForm router;
  bool expert_bias = false;  // a bias that only affects selection, updated from counts
  double bias_update_rate = 0;
  AuxLossForm aux;                                 // `seq` is filled in at run time
  std::int64_t shared_expert_ffn_hidden_size = 0;  // 0: none
  bool shared_expert_gate = false;  // every token says how much of the shared experts it takes
  std::optional<double> capacity_factor;  // times the mean load; none: nothing is dropped
  DropPolicy drop_policy = DropPolicy::kProbability;
  bool pad_to_capacity = false;

  bool operator==(const MoeConfig&) const = default;
};

struct ModelConfig {
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t ffn_hidden_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_query_groups = 0;
  std::int64_t kv_channels = 0;  // elements of a head
  std::int64_t vocab_size = 0;
  std::int64_t padded_vocab_size = 0;  // rows of the embedding and of the output layer
  bool tied_embeddings = false;
  Normalization normalization = Normalization::kRmsNorm;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::kSwiGlu;
  bool mlp_bias = false;
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool qk_layernorm = false;             // RMS norms of queries and keys, before the rotation
  bool qk_layernorm_over_heads = false;  // of all heads of a token at once, not of every head
  // Norms of what attention and the MLP give, before it is added, instead of what they get.
  bool post_layernorm = false;
  std::int64_t learned_positions = 0;  // rows of a learned position embedding; 0: rotary positions
  RopeConfig rope;
  double softmax_scale = 0;  // 0: 1/√head
  // Per layer: the number of keys that a query sees, itself included; 0: all keys before it.
  std::vector<std::int64_t> window_size;
  std::optional<MlaConfig> mla;
  std::optional<MoeConfig> moe;
  std::vector<bool> is_moe_layer;  // per layer
  double init_method_std = 0.02;

  bool operator==(const ModelConfig&) const = default;
};

class SettingsReader;

// Reads settings under Megatron's option names (`num_layers`, `moe_router_topk`, …;
// docs/guides/model-settings.md lists them with defaults). A setting that no field reads is an
// error with the nearest name. A setting that has no effect, given the others, is an error too.
//
// Errors: kUsage, all violations at once: a setting that is missing, unknown or of the wrong type;
// sizes that do not fit each other.
Result<ModelConfig> ParseModelConfig(const layout::Configuration& settings);
// The same from a reader from which the caller also reads other settings. Errors stay in the
// reader.
ModelConfig ReadModelConfig(SettingsReader& settings);

// Those of `settings` that ReadModelConfig reads: the part of a run's settings that describes its
// model.
[[nodiscard]] layout::Configuration SettingsOfModel(const layout::Configuration& settings);
// The model that a run stored among its settings. One that has no effect, given the others, is no
// error: nobody gave it. Errors: kUsage, as above.
Result<ModelConfig> ReadStoredModel(const layout::Configuration& settings);

// Number of weights, with all experts; with only the experts that one token uses.
[[nodiscard]] std::int64_t CountParameters(const ModelConfig& config);
[[nodiscard]] std::int64_t CountActiveParameters(const ModelConfig& config);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_MODEL_CONFIG_H_
