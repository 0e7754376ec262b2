"""A run of ours as a command line of Megatron-LM's: both name their settings alike.

Every setting is turned into a flag, or known to decide no number, or refused: none is left out in silence.
"""

# How the job computes without Transformer Engine, and what it shall not do besides loading and training.
COMMON = """
  --transformer-impl local --attention-backend unfused --no-masked-softmax-fusion --no-rope-fusion --no-bias-swiglu-fusion
  --no-bias-gelu-fusion --no-bias-dropout-fusion --no-gradient-accumulation-fusion --no-persist-layer-norm
  --attention-dropout 0 --hidden-dropout 0 --use-megatron-fsdp --use-distributed-optimizer --ckpt-format fsdp_dtensor
  --tokenizer-type NullTokenizer --make-vocab-size-divisible-by 1 --distributed-backend nccl --eval-iters 0 --rerun-mode disabled
""".split()

WITH_EXPERTS = "--moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-router-dtype fp32".split()

SHARDED = "--data-parallel-sharding-strategy optim_grads_params --overlap-grad-reduce --overlap-param-gather".split()

# Ranks, and the flags that make them a mesh.
MESHES = {
    "fsdp2": (2, []),
    "hsdp2x1": (2, ["--num-distributed-optimizer-instances", "2"]),
    "fsdp2_ep2": (2, ["--expert-model-parallel-size", "2"]),
    "fsdp4": (4, []),
    "hsdp2x2": (4, ["--num-distributed-optimizer-instances", "2"]),
    "fsdp4_ep2": (4, ["--expert-model-parallel-size", "2"]),
    "hsdp2x2_ep2": (4, ["--num-distributed-optimizer-instances", "2", "--expert-model-parallel-size", "2"]),
}

# Data, and what a run does beside its steps.
_OF_THE_LOOP = set("""
  async_save data_kind data_path eod_mask_loss eod_token eval_interval eval_iters exit_interval expert_names expert_optimizer
  finetune init keep_checkpoints load log_interval long_examples metrics optimizer_form optimizer_state_dict packing pad_token prove
  reset_attention_mask reset_position_ids restart_data save save_format save_interval save_proof shuffle tensorboard_dir
  torch_dist_generation train_iters transformer_impl tree valid_data_path
""".split())

# How ranks share the work, and what ours alone has a say in.
_OF_THE_JOB = _OF_THE_LOOP | set("""
  data_parallel_sharding_strategy num_distributed_optimizer_instances outer_dp_sharding_strategy expert_model_parallel_size
  moe_token_dispatcher_type optimizer_cpu_offload overlap_grad_reduce overlap_param_gather recompute_granularity reduction
  weight_slots gradient_slots prefetch_depth
  deterministic_mode distributed_timeout_minutes gpu_collectives loss_chunk_tokens max_unsharded_bytes
  moe_expert_rank_capacity_factor product_algorithms sgd_momentum
""".split())

_SWITCHES = set("""
  add_qkv_bias apply_wd_to_qk_layernorm bf16 calculate_per_token_loss moe_pad_expert_input_to_capacity moe_router_enable_expert_bias moe_shared_expert_gate
  multi_latent_attention rotary_interleaved swiglu untie_embeddings_and_output_weights
""".split())

_VALUES = set("""
  adam_beta1 adam_beta2 adam_eps clip_grad ffn_hidden_size global_batch_size hidden_size init_method_std kv_channels lr
  lr_decay_style lr_warmup_init lr_warmup_iters micro_batch_size min_lr norm_epsilon normalization num_attention_heads num_layers
  optimizer position_embedding_type rotary_percent seed seq_length vocab_size weight_decay
""".split())

_OF_WSD = {"lr_wsd_decay_iters", "lr_wsd_decay_style"}

_OF_EXPERTS = set("""
  moe_aux_loss_coeff moe_expert_capacity_factor moe_ffn_hidden_size moe_layer_freq moe_router_bias_update_rate
  moe_router_load_balancing_type moe_router_score_function moe_router_topk moe_router_topk_scaling_factor
  moe_shared_expert_intermediate_size moe_token_drop_policy moe_z_loss_coeff num_experts
""".split())

_OF_GROUPS = {"moe_router_num_groups", "moe_router_group_topk"}

_OF_LATENT_ATTENTION = {"kv_lora_rank", "q_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"}

# Megatron's command line has nothing for these; it computes what the value here says.
_FIXED = {
    "add_latent_bias": False,
    "decay_all": False,
    "decoupled_weight_decay": True,
    "frozen": None,
    "grad_comm_dtype": None,
    "main_grads_dtype": None,
    "main_params_dtype": "fp32",
    "params_dtype": None,
    "post_layernorm": False,
    "qk_layernorm_over_heads": False,
    "rope_attention_factor": None,
    "rope_scaling_type": "none",
    "softmax_scale": 0.0,
    "window_attn_skip_freq": None,
    "window_size": None,
}

# Say something only beside a setting that is refused above.
_OF_SCALED_POSITIONS = set("""
  beta_fast beta_slow high_freq_factor low_freq_factor mscale mscale_all_dim original_max_position_embeddings
  rotary_scaling_factor yarn_correction_range_round_to_int
""".split())


def flags_of(settings, train_iters):
    """`settings`: every one of a run, as next_losses prints them."""
    latent, experts = settings["multi_latent_attention"], settings.get("num_experts", 0) > 0
    wsd, groups = settings["lr_decay_style"] == "WSD", settings.get("moe_router_num_groups", 1) > 1
    used = dict.fromkeys(_VALUES, True) | dict.fromkeys(_OF_WSD, wsd) | dict.fromkeys(_OF_GROUPS, groups)
    used |= dict.fromkeys(_OF_EXPERTS, experts) | dict.fromkeys(_OF_LATENT_ATTENTION, latent)

    flags = [*COMMON, *SHARDED, *(WITH_EXPERTS if experts else []), "--train-iters", str(train_iters)]
    for name, value in settings.items():
        if name in _OF_THE_JOB or name in _OF_SCALED_POSITIONS:
            continue
        if name in _FIXED:
            if value != _FIXED[name]:
                raise ValueError(f"Megatron has no flag for {name}: {value}")
        elif name in _SWITCHES:
            flags += [_flag(name)] if value and not (latent and name == "rotary_interleaved") else []
        elif name in used:
            # 0 stands for "none" in ours.
            is_none = value is None or (value == 0 and name in {"q_lora_rank", "moe_shared_expert_intermediate_size"})
            flags += [_flag(name), _text(value)] if used[name] and not is_none else []
        elif name in _SPECIAL:
            flags += _SPECIAL[name](settings, value)
        else:
            raise ValueError(f"no flag is known for the setting {name}: {value}")
    return flags


def _flag(name):
    return "--" + name.replace("_", "-")


def _text(value):
    return str(value).replace(" ", "")


def _checked(is_right, name, flags=()):
    if not is_right:
        raise ValueError(f"Megatron computes something else than {name} says")
    return list(flags)


_SPECIAL = {
    "add_bias_linear": lambda s, v: [] if v else ["--disable-bias-linear"],
    "add_attention_output_bias": lambda s, v: _checked(v == s["add_bias_linear"], "add_attention_output_bias"),
    "latent_norm_epsilon": lambda s, v: _checked(
        v == s["norm_epsilon"] or not s["multi_latent_attention"], "latent_norm_epsilon"),
    "lr_decay_iters": lambda s, v: ["--lr-decay-iters", str(v)] if v else [],
    "max_position_embeddings": lambda s, v: ["--max-position-embeddings", str(max(v, s["seq_length"]))],
    "moe_router_group_score": lambda s, v: _checked(
        s["moe_router_num_groups"] == 1
        or {1: "max", 2: "top_two_sum"}.get(s["moe_router_topk"] // s["moe_router_group_topk"]) == v,
        "moe_router_group_score"),
    "moe_router_normalize_topk": lambda s, v: _checked(
        s["moe_router_score_function"] == "softmax" or v == (s["moe_router_topk"] > 1), "moe_router_normalize_topk"),
    # Chosen among all and made to sum to one: the softmax over the chosen, which is what Megatron does unasked.
    "moe_router_pre_softmax": lambda s, v: (
        ["--moe-router-pre-softmax"] if v and not s["moe_router_normalize_topk"] else []),
    "num_query_groups": lambda s, v: (
        [] if v == s["num_attention_heads"] else ["--group-query-attention", "--num-query-groups", str(v)]),
    "padded_vocab_size": lambda s, v: _checked(v == s["vocab_size"], "padded_vocab_size"),
    # Of latent attention it means the norms of the latents, which ours always has.
    "qk_layernorm": lambda s, v: ["--qk-layernorm"] if v or s["multi_latent_attention"] else [],
    # Megatron's latent attention takes its positions for scaled ones unless told otherwise.
    "rotary_base": lambda s, v: (
        ["--rotary-base", str(int(v))] + (["--rope-type", "rope"] if s["multi_latent_attention"] else [])),
}
