// ModelConfig: the shape of a decoder, under Megatron's names.
#ifndef CKPT_TRAINER_MODEL_MODEL_CONFIG_H_
#define CKPT_TRAINER_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
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
  double percent = 1;  // of a head's elements that are rotated, from the front
  bool interleaved = false;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_max_positions = 0;
  double low_freq_factor = 1;   // llama3
  double high_freq_factor = 4;  // llama3
  double beta_fast = 32;        // yarn
  double beta_slow = 1;         // yarn
  bool truncate = true;         // yarn: whole dims at the ends of the ramp
  // yarn: cosine and sine are multiplied by this; the softmax scale of latent attention by the
  // square of `mscale_all_dim`'s.
  double attention_factor = 1;

  bool operator==(const RopeConfig&) const = default;
};

// Latent attention (DeepSeek). Heads have qk_head_dim + qk_pos_emb_head_dim elements.
struct MlaConfig {
  std::int64_t q_lora_rank = 0;  // 0: queries straight from the hidden state
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_head_dim = 0;          // without position
  std::int64_t qk_pos_emb_head_dim = 0;  // rotated
  std::int64_t v_head_dim = 0;
  bool down_bias = false;      // of what makes the latents
  double norm_epsilon = 1e-6;  // of the latent norms

  bool operator==(const MlaConfig&) const = default;
};

struct MoeConfig {
  std::int64_t num_experts = 0;
  std::int64_t ffn_hidden_size = 0;
  RouterForm router;
  bool expert_bias = false;  // a bias for selection only, updated from counts
  double bias_update_rate = 0;
  AuxLossForm aux;                                 // `seq` is filled in at run time
  std::int64_t shared_expert_ffn_hidden_size = 0;  // 0: none
  std::optional<double> capacity_factor;           // of the mean load; none: no token is dropped
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
  bool qk_layernorm = false;           // RMS norm of every query and key head, before the rotation
  std::int64_t learned_positions = 0;  // rows of a learned position embedding; 0: rotary positions
  RopeConfig rope;
  double softmax_scale = 0;  // 0: 1/√head
  // Per layer: keys that a query sees, itself included; 0: all before it.
  std::vector<std::int64_t> window_size;
  std::optional<MlaConfig> mla;
  std::optional<MoeConfig> moe;
  std::vector<bool> is_moe_layer;  // per layer
  double init_method_std = 0.02;

  bool operator==(const ModelConfig&) const = default;
};

class SettingsReader;

// Reads settings under Megatron's option names (`num_layers`, `moe_router_topk`, …; the list with
// defaults is docs/guides/model-settings.md). A setting that no field reads is an error with the
// nearest name, and so is one that decides nothing beside the others.
//
// Errors: kUsage, all violations at once: a missing, unknown or ill-typed setting, sizes that do
// not fit one another.
Result<ModelConfig> ParseModelConfig(const layout::Configuration& settings);
// The same of a reader from which the caller reads other settings, too. What is wrong stays in the
// reader.
ModelConfig ReadModelConfig(SettingsReader& settings);

// Number of weights: of all experts, and of those that one token meets.
[[nodiscard]] std::int64_t CountParameters(const ModelConfig& config);
[[nodiscard]] std::int64_t CountActiveParameters(const ModelConfig& config);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_MODEL_CONFIG_H_
