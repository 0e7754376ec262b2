// Models small enough for finite differences, which between them use every part of the code.
#ifndef CKPT_TESTS_TRAINER_MODEL_TINY_MODELS_H_
#define CKPT_TESTS_TRAINER_MODEL_TINY_MODELS_H_

#include <ostream>
#include <string>
#include <vector>

#include "trainer/model/model_config.h"

namespace ckpt::testing {

struct TinyModel {
  std::string name;
  trainer::ModelConfig config;
};
inline void PrintTo(const TinyModel& model, std::ostream* os) { *os << model.name; }

// Llama: grouped queries, SwiGLU, RMS norms, no biases.
inline trainer::ModelConfig TinyDense() {
  trainer::ModelConfig config;
  config.num_layers = 2;
  config.hidden_size = 12;
  config.ffn_hidden_size = 20;
  config.num_attention_heads = 4;
  config.num_query_groups = 2;
  config.kv_channels = 6;
  config.vocab_size = 23;
  config.padded_vocab_size = 25;
  config.window_size = {0, 0};
  config.is_moe_layer = {false, false};
  return config;
}

inline trainer::ModelConfig TinyLatent() {
  trainer::ModelConfig config = TinyDense();
  config.num_query_groups = 4;
  config.mla = trainer::MlaConfig{.q_lora_rank = 7,
                                  .kv_lora_rank = 5,
                                  .qk_head_dim = 3,
                                  .qk_pos_emb_head_dim = 4,
                                  .v_head_dim = 5};
  config.rope.interleaved = true;
  return config;
}

inline trainer::ModelConfig TinyMoe() {
  trainer::ModelConfig config = TinyDense();
  config.is_moe_layer = {false, true};
  trainer::MoeConfig moe;
  moe.num_experts = 6;
  moe.ffn_hidden_size = 8;
  moe.router.topk = 2;
  moe.router.normalize = true;
  moe.aux = {.kind = trainer::AuxLoss::kBatch, .coefficient = 0.1, .z_coefficient = 0.05};
  config.moe = moe;
  return config;
}

inline std::vector<TinyModel> DenseModels() {
  using trainer::RopeScaling;
  std::vector<TinyModel> models{{"Llama", TinyDense()}};
  {
    trainer::ModelConfig config = TinyDense();
    config.tied_embeddings = true;
    config.qkv_bias = true;
    config.qk_layernorm = true;
    config.window_size = {0, 3};
    models.push_back({"TiedBiasedNormedWindowed", config});
  }
  {
    trainer::ModelConfig config = TinyDense();
    config.normalization = trainer::Normalization::kLayerNorm;
    config.activation = trainer::Activation::kGelu;
    config.mlp_bias = true;
    config.qkv_bias = true;
    config.attention_output_bias = true;
    config.rope.percent = 0.67;  // 4 of 6 elements
    config.rope.interleaved = true;
    models.push_back({"LayerNormGeluBiasesPartialRope", config});
  }
  {
    trainer::ModelConfig config = TinyDense();
    config.rope.scaling = RopeScaling::kLlama3;
    config.rope.factor = 8;
    config.rope.original_max_positions = 64;
    models.push_back({"Llama3Rope", config});
  }
  {
    trainer::ModelConfig config = TinyDense();
    config.qk_layernorm = true;
    config.qk_layernorm_over_heads = true;
    config.post_layernorm = true;
    models.push_back({"NormsBehindAndOverAllHeads", config});
  }
  models.push_back({"Latent", TinyLatent()});
  {
    trainer::ModelConfig config = TinyLatent();
    config.mla->q_lora_rank = 0;
    config.rope.interleaved = false;
    config.rope.scaling = RopeScaling::kYarn;
    config.rope.factor = 4;
    config.rope.original_max_positions = 32;
    config.rope.attention_factor = 1.1;
    config.softmax_scale = 0.3;
    models.push_back({"LatentWithoutQueryLatentYarn", config});
  }
  return models;
}

inline std::vector<TinyModel> MoeModels() {
  std::vector<TinyModel> models{{"Moe", TinyMoe()}};
  {
    trainer::ModelConfig config = TinyMoe();
    config.is_moe_layer = {true, true};
    config.moe->router.score = trainer::ScoreFunction::kSoftmaxTopK;
    config.moe->router.normalize = false;
    config.moe->aux = {};
    models.push_back({"MoeTopKFirst", config});
  }
  {
    trainer::ModelConfig config = TinyLatent();
    config.is_moe_layer = {false, true};
    config.moe = TinyMoe().moe;
    config.moe->router = {.score = trainer::ScoreFunction::kSigmoid,
                          .topk = 2,
                          .num_groups = 3,
                          .group_topk = 2,
                          .normalize = true,
                          .scaling = 2.5};
    config.moe->aux = {.kind = trainer::AuxLoss::kSequence, .coefficient = 0.1};
    config.moe->expert_bias = true;
    config.moe->shared_expert_ffn_hidden_size = 9;
    models.push_back({"LatentMoeSigmoidGroupsSharedExpert", config});
  }
  {
    trainer::ModelConfig config = TinyMoe();
    config.moe->shared_expert_ffn_hidden_size = 9;
    config.moe->shared_expert_gate = true;
    config.post_layernorm = true;
    models.push_back({"MoeSharedExpertWithGateNormsBehind", config});
  }
  {
    trainer::ModelConfig config = TinyMoe();
    config.moe->capacity_factor = 0.75;
    models.push_back({"MoeDroppingTokens", config});
  }
  return models;
}

inline std::vector<TinyModel> AllModels() {
  std::vector<TinyModel> models = DenseModels();
  for (TinyModel& model : MoeModels()) models.push_back(std::move(model));
  return models;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_TINY_MODELS_H_
