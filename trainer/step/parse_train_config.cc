#include "trainer/step/parse_train_config.h"

#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainer/step/trained_units.h"

namespace ckpt::trainer {
namespace {

template <typename Enum>
using Words = std::vector<std::pair<std::string_view, Enum>>;

// Long and short names: Megatron's options accept both.
const Words<DType>& FloatWords() {
  static const Words<DType> words = {{"fp32", DType::kFloat32},
                                     {"float32", DType::kFloat32},
                                     {"bf16", DType::kBfloat16},
                                     {"bfloat16", DType::kBfloat16}};
  return words;
}

int SmallInt(SettingsReader& settings, std::string_view name, int otherwise) {
  const std::int64_t value = settings.Int(name, otherwise, 1);
  if (value <= std::numeric_limits<int>::max()) return static_cast<int>(value);
  settings.Refuse(name, "is not a valid number",
                  fmt::format("at most {}", std::numeric_limits<int>::max()));
  return otherwise;
}

constexpr std::string_view kExpertParallel = "expert_model_parallel_size";

void ReadMesh(SettingsReader& settings, TrainConfig& config) {
  MeshConfig& mesh = config.mesh;
  mesh.num_instances = SmallInt(settings, "num_distributed_optimizer_instances", 1);
  if (settings.TakeWord(kExpertParallel, "auto")) {
    config.expert_choice.emplace();  // made when the batch is known
  } else {
    mesh.expert_parallel = SmallInt(settings, kExpertParallel, 1);
  }
  mesh.sharding = settings.Word<Sharding>("data_parallel_sharding_strategy",
                                          {{"optim_grads_params", Sharding::kOptimGradsParams},
                                           {"optim_grads", Sharding::kOptimGrads},
                                           {"optim", Sharding::kOptim},
                                           {"no_shard", Sharding::kNoShard}});
  mesh.outer = settings.Word<OuterSharding>(
      "outer_dp_sharding_strategy",
      {{"no_shard", OuterSharding::kNoShard}, {"optim", OuterSharding::kOptim}});
  config.dispatcher =
      settings.Word<Dispatcher>("moe_token_dispatcher_type", {{"alltoall", Dispatcher::kAllToAll},
                                                              {"allgather", Dispatcher::kAllGather},
                                                              {"flex", Dispatcher::kFlex}});
  config.rank_capacity_factor = settings.OptionalNumber("moe_expert_rank_capacity_factor", 1);
}

void ReadBatch(SettingsReader& settings, TrainConfig& config) {
  config.micro_batch_size = settings.Int("micro_batch_size", 1, 1);
  // The default is one micro-batch per rank.
  const bool fits =
      config.micro_batch_size <= std::numeric_limits<std::int64_t>::max() / config.mesh.world_size;
  if (!fits) {
    settings.Refuse("micro_batch_size", "is too large");
    config.micro_batch_size = 1;
  }
  config.global_batch_size =
      settings.Int("global_batch_size", config.micro_batch_size * config.mesh.world_size, 1);
  config.seq_length = settings.RequiredInt("seq_length");
  config.per_token_loss = settings.Flag("calculate_per_token_loss", config.per_token_loss);
  config.recompute =
      settings.Word<Recompute>("recompute_granularity", {{"none", Recompute::kNone},
                                                         {"selective", Recompute::kActivations},
                                                         {"full", Recompute::kLayers}});
  config.loss_chunk_tokens = settings.Int("loss_chunk_tokens", config.loss_chunk_tokens, 1);
}

void ReadPrecision(SettingsReader& settings, TrainConfig& config) {
  Precision& precision = config.precision;
  const bool is_bf16 = settings.Flag("bf16", false);
  const auto compute = settings.OptionalWord("params_dtype", FloatWords());
  if (is_bf16 && compute && *compute != DType::kBfloat16) {
    settings.Refuse("params_dtype", "contradicts bf16", "bf16");
  }
  precision.compute = is_bf16 ? DType::kBfloat16 : compute.value_or(DType::kFloat32);
  precision.main_params = settings.Word("main_params_dtype", FloatWords());
  config.reduction = settings.Word<Reduction>(
      "reduction", {{"tree", Reduction::kTree}, {"canonical", Reduction::kCanonical}});
  config.deterministic = settings.Flag("deterministic_mode", config.deterministic);
  config.product_algorithms = settings.Text("product_algorithms", "");
  const auto main_grads = settings.OptionalWord("main_grads_dtype", FloatWords());
  const auto grad_comm = settings.OptionalWord("grad_comm_dtype", FloatWords());
  precision.main_grads = main_grads.value_or(DType::kFloat32);
  precision.grad_comm = grad_comm.value_or(precision.main_grads);
  if (config.reduction == Reduction::kTree) return;
  for (const auto& [name, is_set] : {std::pair("main_grads_dtype", main_grads.has_value()),
                                     std::pair("grad_comm_dtype", grad_comm.has_value())}) {
    if (is_set)
      settings.Refuse(name, "has no effect under reduction=canonical: sums are fixed-point");
  }
  ApplyReduction(config);
}

void ReadOptimizer(SettingsReader& settings, TrainConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  optimizer.kind = settings.Word<OptimizerKind>(
      "optimizer", {{"adam", OptimizerKind::kAdam}, {"sgd", OptimizerKind::kSgd}});
  optimizer.adam_beta1 = settings.Number("adam_beta1", optimizer.adam_beta1);
  optimizer.adam_beta2 = settings.Number("adam_beta2", optimizer.adam_beta2);
  optimizer.adam_eps = settings.Number("adam_eps", optimizer.adam_eps);
  optimizer.decoupled_weight_decay =
      settings.Flag("decoupled_weight_decay", optimizer.decoupled_weight_decay);
  optimizer.sgd_momentum = settings.Number("sgd_momentum", optimizer.sgd_momentum);
  optimizer.weight_decay = settings.Number("weight_decay", optimizer.weight_decay);
  optimizer.decay_all = settings.Flag("decay_all", optimizer.decay_all);
  optimizer.decay_query_key_norms =
      settings.Flag("apply_wd_to_qk_layernorm", optimizer.decay_query_key_norms);
  optimizer.moments_on_host = settings.Flag("optimizer_cpu_offload", optimizer.moments_on_host);
  config.clip_grad = settings.Number("clip_grad", config.clip_grad);
  config.frozen = settings.TextList("frozen");
  config.seed =
      static_cast<std::uint64_t>(settings.Int("seed", static_cast<std::int64_t>(config.seed)));
}

void ReadSchedule(SettingsReader& settings, TrainConfig& config) {
  ScheduleConfig& schedule = config.schedule;
  schedule.style = settings.Word<DecayStyle>("lr_decay_style", {{"constant", DecayStyle::kConstant},
                                                                {"linear", DecayStyle::kLinear},
                                                                {"cosine", DecayStyle::kCosine},
                                                                {"WSD", DecayStyle::kWsd}});
  schedule.max_lr = settings.Number("lr", schedule.max_lr);
  schedule.min_lr = settings.Number("min_lr", schedule.min_lr);
  schedule.init_lr = settings.Number("lr_warmup_init", schedule.init_lr);
  schedule.warmup_steps = settings.Int("lr_warmup_iters", schedule.warmup_steps);
  // The default length of decay is that of the run. A constant rate needs none.
  const std::int64_t train_iters = settings.Int("train_iters", 0);
  schedule.decay_steps =
      settings.Int("lr_decay_iters", schedule.style == DecayStyle::kConstant ? 0 : train_iters);
  schedule.wsd_style = settings.Word<WsdDecayStyle>("lr_wsd_decay_style",
                                                    {{"exponential", WsdDecayStyle::kExponential},
                                                     {"linear", WsdDecayStyle::kLinear},
                                                     {"cosine", WsdDecayStyle::kCosine},
                                                     {"minus_sqrt", WsdDecayStyle::kMinusSqrt}});
  schedule.wsd_decay_steps = settings.Int("lr_wsd_decay_iters", schedule.wsd_decay_steps);
}

void ReadEngine(SettingsReader& settings, TrainConfig& config) {
  config.overlap_grad_reduce = settings.OptionalFlag("overlap_grad_reduce");
  config.overlap_param_gather = settings.OptionalFlag("overlap_param_gather");
  config.gpu_collectives =
      settings.Word<GpuCollectives>("gpu_collectives", {{"auto", GpuCollectives::kAuto},
                                                        {"peer", GpuCollectives::kPeer},
                                                        {"nccl", GpuCollectives::kNccl}});
  config.slots.weight_slots = SmallInt(settings, "weight_slots", config.slots.weight_slots);
  config.slots.gradient_slots = SmallInt(settings, "gradient_slots", config.slots.gradient_slots);
  config.slots.prefetch_depth = SmallInt(settings, "prefetch_depth", config.slots.prefetch_depth);
  config.max_unsharded_bytes = settings.ByteSize("max_unsharded_bytes", config.max_unsharded_bytes);
}

void RefuseIdleSettings(SettingsReader& settings, TrainConfig& config) {
  // With an invalid setting, `config` holds a default in its place, which cannot show what else has
  // no effect.
  if (!settings.ok()) return;
  settings.RefuseIdle(config.mesh.num_instances == 1, "without num_distributed_optimizer_instances",
                      {"outer_dp_sharding_strategy"});
  // Said above, and not to be found a second time.
  if (config.mesh.num_instances == 1) config.mesh.outer = OuterSharding::kNoShard;
  settings.RefuseIdle(!config.model.moe, "without num_experts",
                      {"moe_token_dispatcher_type", "moe_expert_rank_capacity_factor"});
  settings.RefuseIdle(config.model.moe && config.mesh.expert_parallel == 1,
                      "without expert_model_parallel_size", {"moe_expert_rank_capacity_factor"});

  settings.RefuseIdle(config.mesh.world_size == 1, "with one rank", {"gpu_collectives"});
  settings.RefuseIdle(!config.overlap_param_gather.value_or(false), "without overlap_param_gather",
                      {"prefetch_depth"});

  const OptimizerConfig& optimizer = config.optimizer;
  const bool is_adam = optimizer.kind == OptimizerKind::kAdam;
  settings.RefuseIdle(!is_adam, "with optimizer=sgd", {"adam_beta1", "adam_beta2", "adam_eps"});
  settings.RefuseIdle(is_adam, "with optimizer=adam", {"sgd_momentum"});
  settings.RefuseIdle(optimizer.weight_decay == 0, "without weight_decay",
                      {"decoupled_weight_decay", "decay_all", "apply_wd_to_qk_layernorm"});
  settings.RefuseIdle(optimizer.decay_all, "with decay_all", {"apply_wd_to_qk_layernorm"});
  settings.RefuseIdle(!config.model.qk_layernorm, "without qk_layernorm",
                      {"apply_wd_to_qk_layernorm"});

  const ScheduleConfig& schedule = config.schedule;
  settings.RefuseIdle(schedule.style == DecayStyle::kConstant, "with lr_decay_style=constant",
                      {"min_lr", "lr_decay_iters"});
  settings.RefuseIdle(schedule.warmup_steps == 0, "without lr_warmup_iters", {"lr_warmup_init"});
  settings.RefuseIdle(schedule.style != DecayStyle::kWsd, "without lr_decay_style=WSD",
                      {"lr_wsd_decay_style", "lr_wsd_decay_iters"});

  // Rotary positions have no limit of their own, but a limit that is given applies.
  const std::int64_t positions = settings.Int("max_position_embeddings", 0);
  const bool is_bound = settings.IsGiven("max_position_embeddings") && positions > 0;
  if (is_bound && config.seq_length > positions) {
    settings.Refuse("max_position_embeddings", "is below seq_length",
                    fmt::format("at least {}", config.seq_length));
  }
}

}  // namespace

Result<TrainConfig> ParseTrainConfig(SettingsReader& settings, int num_ranks) {
  TrainConfig config;
  config.mesh.world_size = num_ranks;
  config.model = ReadModelConfig(settings);
  // Do not report the model's errors again below.
  if (!settings.ok() && config.model.moe) {
    config.model.moe->router = {};
    config.model.moe->pad_to_capacity = false;
  }
  ReadMesh(settings, config);
  ReadBatch(settings, config);
  if (config.expert_choice) {
    if (!config.model.moe)
      settings.Refuse(kExpertParallel, "is auto, but the model has no experts");
    config.expert_choice = ChooseExpertParallel(config.model, config.mesh, config.dispatcher,
                                                config.micro_batch_size * config.seq_length);
    config.mesh.expert_parallel = config.expert_choice->expert_parallel;
  }
  ReadPrecision(settings, config);
  ReadOptimizer(settings, config);
  ReadSchedule(settings, config);
  ReadEngine(settings, config);
  RefuseIdleSettings(settings, config);

  Status violations = settings.Finish();
  violations.Add(ValidateTrainConfig(config));
  if (!violations.ok()) return violations;
  CKPT_RETURN_IF_ERROR(CheckFrozen(config));
  return config;
}

}  // namespace ckpt::trainer
