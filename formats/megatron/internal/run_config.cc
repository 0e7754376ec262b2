#include "formats/megatron/internal/run_config.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/layout/find_value.h"
#include "formats/megatron/internal/yaml_writer.h"

namespace ckpt::megatron {
namespace {

using layout::Configuration;
using layout::Value;

// Sections whose members are arguments under their own names. Where several have one, the first
// counts.
constexpr std::array<std::string_view, 7> kSections = {
    "train.", "scheduler.", "optimizer.", "rng.", "model.", "model.transformer.", "ddp."};

// Members of the model that the arguments call otherwise.
struct OtherName {
  std::string_view member;
  std::string_view arg;
  bool is_opposite = false;
};
constexpr std::array kOtherNames = {
    OtherName{"num_moe_experts", "num_experts"},
    OtherName{"share_embeddings_and_output_weights", "untie_embeddings_and_output_weights", true},
    OtherName{"rope_scaling", "use_rope_scaling"},
    OtherName{"seq_len_interpolation_factor", "rotary_seq_len_interpolation_factor"},
    OtherName{"bias_activation_fusion", "bias_gelu_fusion"}};

// What is written of the model under its own name, if the arguments say it.
constexpr std::array<std::string_view, 47> kModelMembers = {"num_layers",
                                                            "hidden_size",
                                                            "ffn_hidden_size",
                                                            "num_attention_heads",
                                                            "kv_channels",
                                                            "seq_length",
                                                            "normalization",
                                                            "layernorm_epsilon",
                                                            "add_bias_linear",
                                                            "add_qkv_bias",
                                                            "qk_layernorm",
                                                            "softmax_scale",
                                                            "window_size",
                                                            "window_attn_skip_freq",
                                                            "init_method_std",
                                                            "attention_dropout",
                                                            "hidden_dropout",
                                                            "mtp_num_layers",
                                                            "calculate_per_token_loss",
                                                            "bf16",
                                                            "fp16",
                                                            "rotary_base",
                                                            "rotary_percent",
                                                            "rotary_interleaved",
                                                            "rope_scaling_factor",
                                                            "multi_latent_attention",
                                                            "moe_layer_freq",
                                                            "moe_ffn_hidden_size",
                                                            "moe_shared_expert_intermediate_size",
                                                            "moe_router_topk",
                                                            "moe_router_score_function",
                                                            "moe_router_pre_softmax",
                                                            "moe_router_num_groups",
                                                            "moe_router_group_topk",
                                                            "moe_router_topk_scaling_factor",
                                                            "moe_router_enable_expert_bias",
                                                            "moe_router_bias_update_rate",
                                                            "moe_router_load_balancing_type",
                                                            "moe_aux_loss_coeff",
                                                            "moe_router_dtype",
                                                            "moe_grouped_gemm",
                                                            "transformer_impl",
                                                            "tensor_model_parallel_size",
                                                            "pipeline_model_parallel_size",
                                                            "virtual_pipeline_model_parallel_size",
                                                            "context_parallel_size",
                                                            "expert_model_parallel_size"};
// Of a model with latent attention alone.
constexpr std::array<std::string_view, 11> kLatentMembers = {"kv_lora_rank",
                                                             "qk_head_dim",
                                                             "qk_pos_emb_head_dim",
                                                             "v_head_dim",
                                                             "rope_type",
                                                             "rotary_scaling_factor",
                                                             "original_max_position_embeddings",
                                                             "beta_fast",
                                                             "beta_slow",
                                                             "mscale",
                                                             "mscale_all_dim"};
// Of a model with sinks in its attention, or with a GLU that is shifted or clamped.
constexpr std::array<std::string_view, 3> kSinkAndGluMembers = {"softmax_type", "glu_linear_offset",
                                                                "activation_func_clamp_value"};
// Of a model whose positions are stretched by yarn.
constexpr std::array<std::string_view, 7> kYarnMembers = {"yarn_rotary_scaling_factor",
                                                          "yarn_original_max_position_embeddings",
                                                          "yarn_beta_fast",
                                                          "yarn_beta_slow",
                                                          "yarn_mscale",
                                                          "yarn_mscale_all_dim",
                                                          "yarn_correction_range_round_to_int"};
// How experts are reached: only written where the class assumes something unusual.
constexpr std::array<std::string_view, 2> kDispatchMembers = {"moe_permute_fusion",
                                                              "moe_token_dispatcher_type"};
// Megatron-LM has options without the prefix, too, and makes those with it of them.
constexpr std::array kYarnOptions = {
    OtherName{"yarn_rotary_scaling_factor", "rotary_scaling_factor"},
    OtherName{"yarn_mscale", "mscale"}, OtherName{"yarn_mscale_all_dim", "mscale_all_dim"}};

constexpr std::string_view kBlockSpec =
    "megatron.core.models.gpt.gpt_layer_specs.get_gpt_decoder_block_spec";

// A section of a run, and what is written of it.
struct Section {
  std::string_view name;
  std::string_view target;  // the class that Megatron-Bridge makes of it
  std::span<const std::string_view> members;
};
constexpr std::array<std::string_view, 3> kTrainMembers = {"micro_batch_size", "global_batch_size",
                                                           "train_iters"};
constexpr std::array<std::string_view, 13> kOptimizerMembers = {"optimizer",
                                                                "lr",
                                                                "min_lr",
                                                                "weight_decay",
                                                                "bf16",
                                                                "fp16",
                                                                "adam_eps",
                                                                "sgd_momentum",
                                                                "adam_beta1",
                                                                "adam_beta2",
                                                                "clip_grad",
                                                                "decoupled_weight_decay",
                                                                "use_distributed_optimizer"};
constexpr std::array<std::string_view, 9> kSchedulerMembers = {
    "lr_decay_style",     "lr_decay_iters",     "lr_warmup_iters",
    "lr_warmup_init",     "lr_wsd_decay_style", "lr_wsd_decay_iters",
    "start_weight_decay", "end_weight_decay",   "weight_decay_incr_style"};
constexpr std::array<std::string_view, 1> kRandomMembers = {"seed"};
constexpr std::array<std::string_view, 4> kShardingMembers = {
    "use_distributed_optimizer", "num_distributed_optimizer_instances", "overlap_grad_reduce",
    "overlap_param_gather"};
constexpr std::array kRunSections = {
    Section{"train", "megatron.bridge.training.config.TrainingConfig", kTrainMembers},
    Section{"optimizer", "megatron.bridge.training.config.OptimizerConfig", kOptimizerMembers},
    Section{"scheduler", "megatron.bridge.training.config.SchedulerConfig", kSchedulerMembers},
    Section{"ddp", "megatron.bridge.training.config.DistributedDataParallelConfig",
            kShardingMembers},
    Section{"rng", "megatron.bridge.training.config.RNGConfig", kRandomMembers}};

const Value* Find(const Configuration& values, std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() || found->second.is_null() ? nullptr : &found->second;
}

bool IsTrue(const Configuration& values, std::string_view name) {
  const Value* const value = Find(values, name);
  return value != nullptr && value->AsBool() != nullptr && *value->AsBool();
}

std::string TextIn(const Configuration& values, std::string_view name) {
  const std::string* const text = layout::FindText(values, name);
  return text == nullptr ? std::string() : *text;
}

// The model's members by their own names.
Configuration ModelIn(const Configuration& config) {
  Configuration model;
  for (const std::string_view section : {"model.transformer.", "model."}) {
    for (const auto& [name, value] : config) {
      if (name.starts_with(section)) model.try_emplace(name.substr(section.size()), value);
    }
  }
  return model;
}

// "silu" of the function that run_config.yaml names as "torch.nn.functional.silu".
std::string FunctionIn(const Configuration& model, std::string_view member) {
  const std::string target = TextIn(model, fmt::format("{}._target_", member));
  return target.substr(target.rfind('.') + 1);
}

Status ReadActivation(const Configuration& model, std::string_view key, Configuration& args) {
  const std::string function = FunctionIn(model, "activation_func");
  const bool is_gated = IsTrue(model, "gated_linear_unit");
  args["swiglu"] = is_gated && function == "silu";
  args["quick_geglu"] = is_gated && function == "quick_gelu";
  args["squared_relu"] = !is_gated && function == "squared_relu";
  const bool is_known = is_gated
                            ? function == "silu" || function == "quick_gelu"
                            : function.empty() || function == "gelu" || function == "squared_relu";
  if (is_known) return OkStatus();
  return Error(ErrorKind::kUnsupported, "no argument of Megatron says this activation")
      .Tensor(key)
      .Expected("silu with a gate, or gelu without one")
      .Actual(fmt::format("{}{}", Quote(function), is_gated ? " with a gate" : ""));
}

constexpr std::int64_t kMostRows = std::int64_t{1} << 40;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

// Megatron-Bridge pads the vocabulary, if at all, so that every tensor rank has a multiple of rows.
std::optional<std::int64_t> PaddedRows(std::int64_t rows, const Configuration& values) {
  const std::int64_t divisor =
      layout::FindInt(values, "make_vocab_size_divisible_by").value_or(128);
  const std::int64_t ranks = layout::FindInt(values, "tensor_model_parallel_size").value_or(1);
  const auto is_sane = [](std::int64_t number, std::int64_t most) {
    return number >= 1 && number <= most;
  };
  const bool are_sane =
      is_sane(rows, kMostRows) && is_sane(divisor, kMostRanks) && is_sane(ranks, kMostRanks);
  if (!are_sane) return std::nullopt;
  const std::int64_t multiple = divisor * ranks;
  return (rows + multiple - 1) / multiple * multiple;
}

void ReadVocabulary(const Configuration& model, Configuration& args) {
  const std::optional<std::int64_t> rows = layout::FindInt(model, "vocab_size");
  if (!rows) return;
  const auto padded = IsTrue(model, "should_pad_vocab") ? PaddedRows(*rows, model) : rows;
  if (padded) args["padded_vocab_size"] = *padded;
}

void WriteVocabulary(const Configuration& args, YamlWriter& yaml) {
  const std::optional<std::int64_t> padded = layout::FindInt(args, "padded_vocab_size");
  const std::int64_t words = layout::FindInt(args, "vocab_size").value_or(padded.value_or(0));
  const std::int64_t rows = padded.value_or(words);
  const bool is_padding = rows != words && PaddedRows(words, args) == rows;
  yaml.Member("vocab_size", is_padding ? words : rows);
  yaml.Member("should_pad_vocab", is_padding);
  constexpr std::array<std::string_view, 1> kDivisor = {"make_vocab_size_divisible_by"};
  yaml.Members(kDivisor, args);
}

// How layers are made. Without a word, Megatron-Bridge makes all alike, of Transformer Engine.
void WriteLayers(const Configuration& args, YamlWriter& yaml) {
  const bool is_local = TextIn(args, "transformer_impl") == "local";
  const Value* const freq = Find(args, "moe_layer_freq");
  if (freq != nullptr && freq->AsList() != nullptr) {
    yaml.Partial(
        "transformer_layer_spec", kBlockSpec,
        {{"use_transformer_engine", !is_local}, {"normalization", TextIn(args, "normalization")}});
  } else if (is_local) {
    yaml.Reference("transformer_layer_spec",
                   "megatron.bridge.models.gpt_provider.local_layer_spec");
  }
}

// One class of Megatron-Bridge has members for yarn, and its defaults are those of gpt-oss. So all
// is said in which they differ from other models.
Configuration ArgsForYarnClass(Configuration args) {
  const Configuration usual = {{"activation_func_clamp_value", Value()},
                               {"add_bias_linear", true},
                               {"attention_dropout", 0.1},
                               {"bf16", false},
                               {"bias_gelu_fusion", false},
                               {"glu_linear_offset", 0.0},
                               {"hidden_dropout", 0.1},
                               {"kv_channels", Value()},
                               {"moe_ffn_hidden_size", Value()},
                               {"moe_grouped_gemm", false},
                               {"moe_permute_fusion", false},
                               {"moe_router_load_balancing_type", "aux_loss"},
                               {"moe_router_topk", 2},
                               {"moe_token_dispatcher_type", "allgather"},
                               {"normalization", "LayerNorm"},
                               {"rotary_base", 10000},
                               {"softmax_type", "vanilla"},
                               {"untie_embeddings_and_output_weights", false},
                               {"window_attn_skip_freq", Value()},
                               {"window_size", Value()}};
  for (const auto& [name, value] : usual) {
    if (Find(args, name) == nullptr) args[name] = value;
  }
  if (Find(args, "yarn_rotary_scaling_factor") != nullptr) return args;
  for (const OtherName& option : kYarnOptions) {
    if (const Value* const value = Find(args, option.arg))
      args[std::string(option.member)] = *value;
  }
  return args;
}

// What the positions are, in the words of the arguments.
std::string PositionsOf(const Configuration& args) {
  std::string positions = TextIn(args, "position_embedding_type");
  const bool is_rotary = IsTrue(args, "use_rotary_position_embeddings");
  return positions != "yarn" && is_rotary ? "rope" : positions;
}

void WriteModel(const Configuration& said, YamlWriter& yaml) {
  const std::string positions = PositionsOf(said);
  const bool is_latent = IsTrue(said, "multi_latent_attention");
  const bool is_yarn = !is_latent && positions == "yarn";
  const Configuration args = is_yarn ? ArgsForYarnClass(said) : said;
  yaml.Begin("model", is_latent ? "megatron.bridge.models.mla_provider.MLAModelProvider"
                      : is_yarn ? "megatron.bridge.models.gpt_oss.gpt_oss_provider.GPTOSSProvider"
                                : "megatron.bridge.models.gpt_provider.GPTModelProvider");
  yaml.Members(kModelMembers, args);
  if (is_latent) {
    constexpr std::array<std::string_view, 1> kMayBeNone = {"q_lora_rank"};
    yaml.Members(kMayBeNone, args);
    yaml.NonNullMembers(kLatentMembers, args);
  }
  if (is_yarn) {
    yaml.NonNullMembers(kYarnMembers, args);
    yaml.Members(kDispatchMembers, args);
    yaml.Members(kSinkAndGluMembers, args);
  } else {
    yaml.NonNullMembers(kSinkAndGluMembers, args);
  }
  // Not every version has such a member.
  if (IsTrue(args, "moe_shared_expert_gate")) yaml.Member("moe_shared_expert_gate", true);
  for (const OtherName& other : kOtherNames) {
    const auto found = args.find(other.arg);
    if (found == args.end()) continue;
    yaml.Member(other.member, other.is_opposite ? Value(!IsTrue(args, other.arg)) : found->second);
  }
  // Without the option, Megatron's arguments have a number of groups that means nothing.
  const bool has_groups = IsTrue(args, "group_query_attention");
  const Value* const groups = Find(args, has_groups ? "num_query_groups" : "num_attention_heads");
  if (groups != nullptr) yaml.Member("num_query_groups", *groups);
  if (!positions.empty()) yaml.Member("position_embedding_type", positions);
  WriteVocabulary(args, yaml);
  const bool is_swiglu = IsTrue(args, "swiglu");
  yaml.Member("gated_linear_unit", is_swiglu || IsTrue(args, "quick_geglu"));
  yaml.Reference("activation_func",
                 is_swiglu                      ? "torch.nn.functional.silu"
                 : IsTrue(args, "quick_geglu")  ? "megatron.core.activations.quick_gelu"
                 : IsTrue(args, "squared_relu") ? "megatron.core.activations.squared_relu"
                                                : "torch.nn.functional.gelu");
  yaml.Reference("params_dtype", IsTrue(args, "bf16")   ? "torch.bfloat16"
                                 : IsTrue(args, "fp16") ? "torch.float16"
                                                        : "torch.float32");
  WriteLayers(args, yaml);
}

}  // namespace

Result<Configuration> ArgsOfRunConfig(const Configuration& config, std::string_view key) {
  const Configuration model = ModelIn(config);
  Configuration args;
  if (Find(model, "num_layers") == nullptr) return args;
  for (const std::string_view section : kSections) {
    for (const auto& [name, value] : config) {
      if (!name.starts_with(section)) continue;
      const std::string member = name.substr(section.size());
      const bool is_plain = member.find('.') == std::string::npos && !member.starts_with('_');
      if (is_plain) args.try_emplace(member, value);
    }
  }
  for (const OtherName& other : kOtherNames) {
    const Value* const value = Find(model, other.member);
    if (value == nullptr) continue;
    args[std::string(other.arg)] = other.is_opposite ? Value(!IsTrue(model, other.member)) : *value;
  }
  args["group_query_attention"] = Find(model, "num_query_groups") != nullptr;
  if (const Value* const length = Find(model, "seq_length")) {
    args.try_emplace("max_position_embeddings", *length);
  }
  const Value* const is_of_engine = Find(model, "transformer_layer_spec.use_transformer_engine");
  const bool is_local = FunctionIn(model, "transformer_layer_spec") == "local_layer_spec" ||
                        (is_of_engine != nullptr && *is_of_engine == Value(false));
  if (is_local) args["transformer_impl"] = "local";
  ReadVocabulary(model, args);
  CKPT_RETURN_IF_ERROR(ReadActivation(model, key, args));
  return args;
}

std::string WriteRunConfig(const TrainingRun& run, const RunConfigFacts& facts) {
  const Configuration args(run.args.begin(), run.args.end());
  const bool has_optimizer = !run.groups.empty();
  YamlWriter yaml;
  yaml.Top("_target_", "megatron.bridge.training.config.ConfigContainer");
  WriteModel(args, yaml);
  if (has_optimizer) {
    for (const Section& section : kRunSections) {
      yaml.Begin(section.name, section.target);
      yaml.Members(section.members, args);
    }
  } else {
    // As Megatron-Bridge saves a model alone.
    for (const std::string_view absent : {"train", "scheduler", "ddp"}) yaml.Top(absent, {});
    yaml.Begin("optimizer", "megatron.bridge.training.config.OptimizerConfig");
    yaml.Member("use_distributed_optimizer", false);
  }
  yaml.Top("dataset", {});
  yaml.Begin("logger", "megatron.bridge.training.config.LoggerConfig");
  if (facts.has_tokenizer) {
    yaml.Begin("tokenizer", "megatron.bridge.training.tokenizers.config.TokenizerConfig");
    yaml.Member("tokenizer_type", "HuggingFaceTokenizer");
    // An empty path stands for the folder beside this file.
    yaml.Call("tokenizer_model", "pathlib.Path");
  } else {
    yaml.Top("tokenizer", {});
  }
  yaml.Begin("checkpoint", "megatron.bridge.training.config.CheckpointConfig");
  yaml.Member("ckpt_format", std::string(facts.format));
  yaml.Member("save_optim", has_optimizer);
  yaml.Member("save_rng", has_optimizer);
  yaml.Member("fully_parallel_save", true);
  yaml.Member("dist_ckpt_optim_fully_reshardable", true);
  return yaml.Take();
}

}  // namespace ckpt::megatron
