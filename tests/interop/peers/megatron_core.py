"""What real Megatron-Core makes of a torch_dist checkpoint, on the CPU and one rank.

    megatron_core.py CORE FOLDER LIVE OWN --grouped|--sequential [--expert-ranks 2] [--zarr ZARR] [--optimizer-form FORM]
                     [--singleton true]

Builds the GPTModel that `args` in FOLDER describe, of local layers, and of a training run also its distributed optimizer and
scheduler; loads FOLDER into them with a strictness that raises on every missing and every unexpected key, stores the live
parameters in LIVE (torch.save), and saves the same to OWN by itself.
CORE: where the library's packages lie. --grouped, --sequential: of which class experts are. With --expert-ranks, so many processes
share the experts and the optimizer's state. With --zarr, the place of that package, it saves by the older backend: a zarr array for each tensor. With --optimizer-form, it saves in that form in place of FOLDER's; with
--singleton, as `singleton_local_shards` has it.
"""
import dataclasses
import inspect
import json
import multiprocessing
import os
import queue
import random
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
core, folder, live, own, experts = sys.argv[1:6]
options = dict(zip(sys.argv[6::2], sys.argv[7::2]))
expert_ranks = int(options.get("--expert-ranks", 1))
sys.path.insert(0, core)
os.environ.update(RANK="0", WORLD_SIZE=str(expert_ranks), LOCAL_RANK="0", GLOO_SOCKET_IFNAME="lo", CUDA_DEVICE_MAX_CONNECTIONS="1",
                  TORCH_CUDA_ARCH_LIST="9.0")

import no_gpu

if "--zarr" in options:
    import zarr_package

    zarr_package.install(options["--zarr"])
no_gpu.install()
import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.fusions.fused_bias_geglu import quick_gelu
from megatron.core.models.gpt import GPTModel, gpt_layer_specs
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig


class ResultsQueue:
    """How the processes that write files report, in place of one more process that keeps a queue."""

    def __init__(self):
        pipe = multiprocessing.get_context("fork").SimpleQueue()
        self.put, self.get, self.empty = pipe.put, pipe.get, pipe.empty

    def get_nowait(self):
        if self.empty():
            raise queue.Empty
        return self.get()


def only(function, **settings):
    """Those settings that this version knows."""
    known = {f.name for f in dataclasses.fields(function)} if dataclasses.is_dataclass(function) \
        else set(inspect.signature(function).parameters)
    return {k: v for k, v in settings.items() if k in known}


def config_of(args):
    dtype = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32
    settings = dict(
        num_layers=args.num_layers, hidden_size=args.hidden_size, ffn_hidden_size=args.ffn_hidden_size,
        num_attention_heads=args.num_attention_heads, kv_channels=args.kv_channels, normalization=args.normalization,
        num_query_groups=args.num_query_groups if args.group_query_attention else None,
        layernorm_epsilon=getattr(args, "norm_epsilon", None) or args.layernorm_epsilon, gated_linear_unit=args.swiglu or args.quick_geglu,
        activation_func=quick_gelu if args.quick_geglu else F.silu if args.swiglu else F.gelu,
        glu_linear_offset=args.glu_linear_offset, softmax_type=args.softmax_type,
        activation_func_clamp_value=getattr(args, "activation_func_clamp_value", None),
        add_bias_linear=args.add_bias_linear, add_qkv_bias=args.add_qkv_bias, qk_layernorm=args.qk_layernorm,
        tensor_model_parallel_size=args.tensor_model_parallel_size, pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=getattr(args, "virtual_pipeline_model_parallel_size", None),
        expert_model_parallel_size=expert_ranks,
        use_cpu_initialization=True, params_dtype=dtype, pipeline_dtype=dtype, bf16=args.bf16, fp16=args.fp16,
        mtp_num_layers=getattr(args, "mtp_num_layers", None),
        hidden_dropout=0.0, attention_dropout=0.0, bias_dropout_fusion=False, gradient_accumulation_fusion=False,
        masked_softmax_fusion=False, apply_rope_fusion=False, moe_permute_fusion=False, persist_layer_norm=False)
    if args.num_experts:
        settings |= dict(
            num_moe_experts=args.num_experts, moe_layer_freq=args.moe_layer_freq, moe_router_topk=args.moe_router_topk,
            moe_ffn_hidden_size=args.moe_ffn_hidden_size, moe_router_score_function=args.moe_router_score_function,
            moe_router_enable_expert_bias=bool(getattr(args, "moe_router_enable_expert_bias", False)),
            moe_shared_expert_intermediate_size=args.moe_shared_expert_intermediate_size,
            moe_shared_expert_gate=args.moe_shared_expert_gate,
            moe_router_pre_softmax=args.moe_router_pre_softmax,
            # Transformer Engine's grouped experts need a GPU; the older class of the same keys does not.
            moe_grouped_gemm=experts == "--grouped", moe_use_legacy_grouped_gemm=experts == "--grouped")
    if args.multi_latent_attention:
        settings |= {name: getattr(args, name) for name in (
            "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")} | dict(multi_latent_attention=True)
    kind = MLATransformerConfig if args.multi_latent_attention else TransformerConfig
    return kind(**only(kind, **settings))


def prepare_parts(args):
    """Classes of Transformer Engine that are looked for, though no layer here is of one."""
    if experts == "--grouped":
        from megatron.core.transformer.moe import experts as classes
        classes.gg.assert_grouped_gemm_is_available = lambda: None
    if args.multi_latent_attention:
        from megatron.core.transformer import multi_latent_attention
        from megatron.core.transformer.dot_product_attention import DotProductAttention
        for name in ("TELinear", "TEColumnParallelLinear"):
            if not isinstance(getattr(multi_latent_attention, name, None), type):
                setattr(multi_latent_attention, name, type(name, (), {}))
        original = DotProductAttention.__init__
        DotProductAttention.__init__ = lambda self, *a, k_channels=None, v_channels=None, **k: original(self, *a, **k)


def further_spec(config, spec, **virtual):
    """Of the layers that predict further tokens; None on a rank that has none."""
    if not config.mtp_num_layers:
        return None
    return gpt_layer_specs.get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False, **virtual)


def build(args):
    prepare_parts(args)
    config = config_of(args)
    # As Megatron-LM hands them on: the class does not declare them.
    if args.position_embedding_type == "yarn":
        for name in (n for n in vars(args) if n.startswith("yarn_")):
            setattr(config, name, getattr(args, name))
    spec = gpt_layer_specs.get_gpt_decoder_block_spec(
        config, use_transformer_engine=False, **only(gpt_layer_specs.get_gpt_decoder_block_spec, normalization=args.normalization))
    return GPTModel(config=config, transformer_layer_spec=spec, mtp_block_spec=further_spec(config, spec), vocab_size=args.padded_vocab_size,
                    max_sequence_length=args.max_position_embeddings, position_embedding_type=args.position_embedding_type,
                    share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights).to(config.params_dtype)


def keep_steps():
    """torch's own Adam counts steps in a tensor of each parameter. load_state_dict has set them; the form has none."""
    original = DistributedOptimizer._set_main_param_and_optimizer_states

    def set_states(self, parameter, tensors):
        step = self._get_main_param_and_optimizer_states(parameter)["step"]
        original(self, parameter, {**tensors, "step": step})

    DistributedOptimizer._set_main_param_and_optimizer_states = set_states


def optimizer_of(args, model):
    """The model in its wrappers, its distributed optimizer and the scheduler."""
    keep_steps()
    config = model.config
    wrapped = DistributedDataParallel(
        config, DistributedDataParallelConfig(**only(DistributedDataParallelConfig, grad_reduce_in_fp32=True,
                                                     use_distributed_optimizer=True, overlap_grad_reduce=False)),
        Float16Module(config, model) if config.bf16 else model)
    settings = OptimizerConfig(**only(
        OptimizerConfig, optimizer="adam", lr=args.lr, min_lr=args.min_lr, weight_decay=args.weight_decay, bf16=config.bf16,
        params_dtype=config.params_dtype, use_distributed_optimizer=True, clip_grad=args.clip_grad,
        apply_wd_to_qk_layernorm=getattr(args, "apply_wd_to_qk_layernorm", False)))
    optimizer = get_megatron_optimizer(settings, [wrapped])
    for parameter in model.parameters():
        parameter.main_grad.fill_(1.0)
    optimizer.step()  # without Apex and Transformer Engine it has no state before; all of it is loaded below
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=9.0, min_lr=9.0, lr_warmup_steps=1, lr_decay_steps=9, lr_decay_style="constant",
        start_wd=args.start_weight_decay, end_wd=args.end_weight_decay, wd_incr_steps=9, wd_incr_style="constant", use_checkpoint_opt_param_scheduler=True,
        override_opt_param_scheduler=False)
    return optimizer, scheduler


def decayed(optimizer, model):
    """Names of the parameters in groups that decay. REQUIRES: one distributed optimizer."""
    (optimizer,) = getattr(optimizer, "chained_optimizers", [optimizer])
    return [name for name, parameter in model.named_parameters()
            if optimizer.optimizer.param_groups[optimizer.model_param_group_index_map[parameter][0]]["wd_mult"] != 0]


def restore(random_states):
    """The libraries take the states."""
    states = random_states[0]
    random.setstate(states["random_rng_state"])
    numpy.random.set_state(states["np_rng_state"])
    torch.set_rng_state(states["torch_rng_state"])
    assert {"model-parallel-rng", "data-parallel-rng", "expert-parallel-rng"} == set(states["rng_tracker_states"])


def main():
    filesystem_async._results_queue = ResultsQueue()
    filesystem_async._process_memory = lambda: 0  # it asks a package for a figure of the log
    numpy.product = numpy.prod  # Megatron-Core 0.15 calls it as it was before NumPy 2
    store = os.path.join(tempfile.mkdtemp(), "store")
    rank = next((other for other in range(1, expert_ranks) if os.fork() == 0), 0)  # one more process for each further rank
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=expert_ranks)
    parallel_state.initialize_model_parallel(expert_model_parallel_size=expert_ranks)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    common = dist_checkpointing.load_common_state_dict(folder)
    assert common["checkpoint_version"] == 3.0
    content = common["content_metadata"]
    model = build(common["args"])
    metadata = dict(content, dp_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(-1234.5)
    is_run = "optimizer" in common
    optimizer, scheduler = optimizer_of(common["args"], model) if is_run else (None, None)

    def state_dict(**loading):
        state = {"model": model.sharded_state_dict(**only(model.sharded_state_dict, metadata=metadata))}
        if is_run:
            state["optimizer"] = optimizer.sharded_state_dict(state, metadata=metadata, **loading)
        return state

    wanted = state_dict(is_loading=True) if is_run else state_dict()
    if is_run:
        wanted["rng_state"] = ShardedObject("rng_state", None, (1, 1), (0, 0))
    loaded = dist_checkpointing.load(wanted, folder, strict="raise_all", validate_access_integrity=False)
    missing, unexpected = model.load_state_dict(loaded["model"], strict=False)
    assert not missing and all(k.endswith("_extra_state") for k in unexpected), (missing, unexpected)
    if rank == 0:
        torch.save({k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}, live)
    if is_run:
        optimizer.load_state_dict(loaded["optimizer"])
        scheduler.load_state_dict(common["opt_param_scheduler"])
        restore(loaded["rng_state"])
    os.makedirs(own, exist_ok=True)
    if "--optimizer-form" in options:
        content = dict(content, distrib_optim_sharding_type=options["--optimizer-form"])
        metadata.update(content)
    if "--singleton" in options:
        content = dict(content, singleton_local_shards=True)
        metadata.update(content)
    state = {k: v for k, v in common.items() if k not in ("content_metadata", "optimizer")} | state_dict()
    if is_run:
        state["opt_param_scheduler"] = scheduler.state_dict()
        state["rng_state"] = ShardedObject("rng_state", loaded["rng_state"], (1, 1), (0, 0), replica_id=rank)
    backend = {"sharded_strategy": ("zarr", 1)} if "--zarr" in options else {}
    dist_checkpointing.save(state, own, **only(dist_checkpointing.save, content_metadata=content, async_strategy="mcore"), **backend)
    kept = lambda d: {k: d.get(k) for k in ("opt_param_scheduler", "iteration", "num_floating_point_operations_so_far")}
    own_common = dist_checkpointing.load_common_state_dict(own)
    assert kept(own_common) == kept(common), (kept(own_common), kept(common))
    # One optimizer, or several by number.
    optimizers = lambda d: [d["optimizer"]] if "param_state_sharding_type" in d["optimizer"] else [d["optimizer"][i] for i in sorted(d["optimizer"])]
    said = ["wd_mult", "lr_mult", "max_lr", "min_lr", "lr", "betas", "eps", "step", "weight_decay"] + ["is_expert_parallel"] * (expert_ranks > 1)
    groups = lambda d: [[{k: g[k] for k in said if k in g} for g in o["optimizer"]["param_groups"]] for o in optimizers(d)]
    if is_run and content["distrib_optim_sharding_type"] != "dp_reshardable":  # which has them beside its buffers
        assert len(groups(own_common)) == len(groups(common))
        for mine, theirs in zip(groups(own_common), groups(common)):
            assert len(mine) == len(theirs) and all(g in theirs for g in mine), (mine, theirs)
    if rank == 0:
        done = {"iteration": common["iteration"], "optimizers": len(optimizers(common)) if is_run else 0}
        if done["optimizers"] == 1:
            done["decayed"] = decayed(optimizer, model)
        print(json.dumps(done))
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
