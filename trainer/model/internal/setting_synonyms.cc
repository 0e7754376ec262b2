#include "trainer/model/internal/setting_synonyms.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace ckpt::trainer {
namespace {

// Words that differ too much from the setting's own name to be found by their letters.
constexpr auto kSynonyms = std::to_array<std::pair<std::string_view, std::string_view>>({
    // the model
    {"num_hidden_layers", "num_layers"},
    {"n_layers", "num_layers"},
    {"n_layer", "num_layers"},
    {"d_model", "hidden_size"},
    {"n_embd", "hidden_size"},
    {"dim", "hidden_size"},
    {"intermediate_size", "ffn_hidden_size"},
    {"n_heads", "num_attention_heads"},
    {"num_heads", "num_attention_heads"},
    {"n_head", "num_attention_heads"},
    {"num_key_value_heads", "num_query_groups"},
    {"n_kv_heads", "num_query_groups"},
    {"head_dim", "kv_channels"},
    {"tie_word_embeddings", "untie_embeddings_and_output_weights"},
    {"rms_norm_eps", "norm_epsilon"},
    {"layernorm_epsilon", "norm_epsilon"},
    {"initializer_range", "init_method_std"},
    {"sliding_window", "window_size"},
    {"rope_theta", "rotary_base"},
    {"partial_rotary_factor", "rotary_percent"},
    {"num_local_experts", "num_experts"},
    {"n_routed_experts", "num_experts"},
    {"num_experts_per_tok", "moe_router_topk"},
    {"topk", "moe_router_topk"},
    {"moe_intermediate_size", "moe_ffn_hidden_size"},
    {"norm_topk_prob", "moe_router_normalize_topk"},
    {"router_aux_loss_coef", "moe_aux_loss_coeff"},
    {"capacity_factor", "moe_expert_capacity_factor"},
    // batch and precision
    {"seq_len", "seq_length"},
    {"sequence_length", "seq_length"},
    {"max_seq_len", "seq_length"},
    {"max_seq_length", "seq_length"},
    {"block_size", "seq_length"},
    {"context_length", "seq_length"},
    {"batch_size", "global_batch_size"},
    {"train_batch_size", "global_batch_size"},
    {"local_batch_size", "micro_batch_size"},
    {"per_device_train_batch_size", "micro_batch_size"},
    {"train_micro_batch_size_per_gpu", "micro_batch_size"},
    {"gradient_accumulation_steps", "global_batch_size"},
    {"gradient_checkpointing", "recompute_granularity"},
    {"activation_checkpointing", "recompute_granularity"},
    {"fp16", "bf16"},
    {"dtype", "params_dtype"},
    {"torch_dtype", "params_dtype"},
    {"precision", "params_dtype"},
    {"mixed_precision", "params_dtype"},
    // the mesh
    {"ep", "expert_model_parallel_size"},
    {"ep_size", "expert_model_parallel_size"},
    {"expert_parallel_size", "expert_model_parallel_size"},
    {"sharding_strategy", "data_parallel_sharding_strategy"},
    {"zero_stage", "data_parallel_sharding_strategy"},
    {"num_replicas", "num_distributed_optimizer_instances"},
    // optimizer and schedule
    {"learning_rate", "lr"},
    {"max_lr", "lr"},
    {"max_learning_rate", "lr"},
    {"min_learning_rate", "min_lr"},
    {"lr_scheduler_type", "lr_decay_style"},
    {"lr_scheduler", "lr_decay_style"},
    {"scheduler", "lr_decay_style"},
    {"warmup_steps", "lr_warmup_iters"},
    {"warmup_iters", "lr_warmup_iters"},
    {"lr_warmup_steps", "lr_warmup_iters"},
    {"decay_steps", "lr_decay_iters"},
    {"lr_decay_steps", "lr_decay_iters"},
    {"max_grad_norm", "clip_grad"},
    {"grad_clip", "clip_grad"},
    {"gradient_clipping", "clip_grad"},
    {"beta1", "adam_beta1"},
    {"beta2", "adam_beta2"},
    {"adam_epsilon", "adam_eps"},
    {"eps", "adam_eps"},
    {"momentum", "sgd_momentum"},
    {"wd", "weight_decay"},
    {"freeze", "frozen"},
    // the run
    {"max_steps", "train_iters"},
    {"steps", "train_iters"},
    {"max_iters", "train_iters"},
    {"train_steps", "train_iters"},
    {"num_steps", "train_iters"},
    {"iterations", "train_iters"},
    {"data", "data_path"},
    {"dataset", "data_path"},
    {"train_data", "data_path"},
    {"train_data_path", "data_path"},
    {"train_file", "data_path"},
    {"valid_data", "valid_data_path"},
    {"eval_data", "valid_data_path"},
    {"validation_file", "valid_data_path"},
    {"eval_steps", "eval_interval"},
    {"eval_every", "eval_interval"},
    {"log_every", "log_interval"},
    {"logging_steps", "log_interval"},
    {"logging_dir", "tensorboard_dir"},
    {"output_dir", "save"},
    {"save_dir", "save"},
    {"checkpoint_dir", "save"},
    {"save_steps", "save_interval"},
    {"save_every", "save_interval"},
    {"save_total_limit", "keep_checkpoints"},
    {"resume_from_checkpoint", "load"},
    {"load_dir", "load"},
    {"resume", "load"},
    {"pretrained", "init"},
    {"model_name_or_path", "init"},
    {"ckpt_format", "save_format"},
    {"random_seed", "seed"},
});

// Complete hints.
constexpr std::string_view kNoTensorParallelism =
    "this trainer does not divide a tensor's computation among ranks: "
    "data_parallel_sharding_strategy shards parameters over ranks, expert_model_parallel_size "
    "experts";
constexpr std::string_view kNoPipeline =
    "this trainer has no pipeline: every rank computes all layers, and "
    "data_parallel_sharding_strategy shards their parameters";
constexpr std::string_view kNoContextParallelism =
    "this trainer does not divide sequences among ranks: recompute_granularity=full saves memory "
    "with long ones";
constexpr std::string_view kNoEpochs =
    "training is counted in steps of global_batch_size sequences: set train_iters";
constexpr std::string_view kNoDropout = "this trainer does not compute dropout";

constexpr auto kAbsent = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"tensor_model_parallel_size", kNoTensorParallelism},
    {"tensor_parallel_size", kNoTensorParallelism},
    {"tp", kNoTensorParallelism},
    {"tp_size", kNoTensorParallelism},
    {"sequence_parallel", kNoTensorParallelism},
    {"expert_tensor_parallel_size", kNoTensorParallelism},
    {"pipeline_model_parallel_size", kNoPipeline},
    {"pipeline_parallel_size", kNoPipeline},
    {"virtual_pipeline_model_parallel_size", kNoPipeline},
    {"pp", kNoPipeline},
    {"pp_size", kNoPipeline},
    {"context_parallel_size", kNoContextParallelism},
    {"cp", kNoContextParallelism},
    {"cp_size", kNoContextParallelism},
    {"epochs", kNoEpochs},
    {"num_epochs", kNoEpochs},
    {"num_train_epochs", kNoEpochs},
    {"max_epochs", kNoEpochs},
    {"dropout", kNoDropout},
    {"hidden_dropout", kNoDropout},
    {"attention_dropout", kNoDropout},
});

std::string_view Second(std::span<const std::pair<std::string_view, std::string_view>> pairs,
                        std::string_view first) {
  const auto found =
      std::ranges::find(pairs, first, &std::pair<std::string_view, std::string_view>::first);
  return found == pairs.end() ? std::string_view() : found->second;
}

}  // namespace

std::string_view WhyNoSetting(std::string_view name) { return Second(kAbsent, name); }

std::string_view SettingCalled(std::string_view name) { return Second(kSynonyms, name); }

}  // namespace ckpt::trainer
