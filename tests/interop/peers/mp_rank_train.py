"""Trains a model on real Megatron's ranks for some steps, and saves the same state in several forms.

    mp_rank_train.py CORE FOLDER OUT TENSOR,PIPELINE,VIRTUAL,EXPERT,DATA KIND [--grouped|--sequential] [--bucket ELEMENTS] [--fp32]
                     [--sgd] [--no-momentum] [--decoupled] [--slow] [--buffers] [--load BUFFERS]

Every rank builds its part of the GPTModel that `args` in FOLDER (torch_dist) describe, and loads FOLDER into it. Its optimizer is that
of KIND, `distributed` or `plain`, and steps with random gradients. OUT/legacy is what Megatron-LM saves with `--ckpt-format torch`;
OUT/core is the same as torch_dist in the form fully_reshardable, by dist_checkpointing; with --buffers, so is OUT/buffers in the form
dp_reshardable. With --grouped, the weights of all experts of a rank are one array. With --slow, vectors begin with ones, and weights
change by less than their bfloat16 copies show. With --load, the model and the optimizer then take BUFFERS (torch_dist, dp_reshardable)
with a strictness that raises on every missing and every unexpected key.
"""
import json
import os
import pathlib
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import megatron_core as peer  # reads CORE and FOLDER from the command line
import megatron_ranks
import mp_rank_model
import torch
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.module import Float16Module

FOLDER, OUT = sys.argv[2], pathlib.Path(sys.argv[3])
TENSOR, PIPELINE, VIRTUAL, EXPERT, DATA = map(int, sys.argv[4].split(","))
IS_DISTRIBUTED = sys.argv[5] == "distributed"
peer.experts = "--grouped" if "--grouped" in sys.argv else "--sequential"
RANKS = TENSOR * PIPELINE * DATA  # experts are divided over the data-parallel ranks
BUCKET = int(sys.argv[sys.argv.index("--bucket") + 1]) if "--bucket" in sys.argv else None
STEPS, ITERATION, SAMPLES = 3, 7, 56
HAS_BUFFERS = "--buffers" in sys.argv
IS_SLOW = "--slow" in sys.argv
LOADED = sys.argv[sys.argv.index("--load") + 1] if "--load" in sys.argv else None
RATE = 1e-6 if IS_SLOW else 0.01


def describe_run(args):
    """What Megatron-LM's arguments say of such a run."""
    args.data_parallel_size = DATA
    args.use_distributed_optimizer, args.overlap_grad_reduce, args.ddp_bucket_size = IS_DISTRIBUTED, BUCKET is not None, BUCKET
    args.optimizer, args.lr, args.min_lr, args.weight_decay = "sgd" if "--sgd" in sys.argv else "adam", RATE, RATE / 10, 0.1
    args.adam_beta1, args.adam_beta2, args.adam_eps, args.clip_grad = 0.9, 0.95, 1e-8, 0.0
    args.sgd_momentum = 0.0 if "--no-momentum" in sys.argv else 0.9
    args.lr_decay_style, args.seed = "constant", 1
    args.moe_grouped_gemm = peer.experts == "--grouped"
    args.iteration, args.consumed_train_samples, args.global_batch_size = ITERATION, SAMPLES, 8
    args.train_iters = 100
    args.decoupled_lr, args.decoupled_min_lr = (0.003, 0.0003) if "--decoupled" in sys.argv else (None, None)
    if "--fp32" in sys.argv:
        args.bf16 = False


def fill_vectors(parts):
    """As new norms are, and equal as new biases are."""
    with torch.no_grad():
        for part in parts:
            for parameter in part.parameters():
                if parameter.dim() == 1:
                    parameter.fill_(1)


def fill_gradients(parts, step):
    """Random ones, equal on ranks that have the same parameter."""
    for number, part in enumerate(parts):
        for name, parameter in part.named_parameters():
            place = [step, number, name, parallel_state.get_pipeline_model_parallel_rank()]
            if getattr(parameter, "shared_embedding", False):
                place = [step, "embedding"]
            if getattr(parameter, "tensor_model_parallel", False):
                place.append(parallel_state.get_tensor_model_parallel_rank())
            if not getattr(parameter, "allreduce", True):
                place.append(parallel_state.get_expert_model_parallel_rank())
            generator = torch.Generator().manual_seed(zlib.crc32(repr(place).encode()))
            parameter.main_grad.copy_(torch.randn(parameter.shape, generator=generator))


def optimizer_of(args, parts):
    """The parts in their wrappers, and their optimizer."""
    config = parts[0].config
    settings = DistributedDataParallelConfig(**peer.only(
        DistributedDataParallelConfig, grad_reduce_in_fp32=True, use_distributed_optimizer=IS_DISTRIBUTED,
        overlap_grad_reduce=args.overlap_grad_reduce, bucket_size=BUCKET))
    wrapped = [DistributedDataParallel(config, settings, Float16Module(config, part) if config.bf16 else part, disable_bucketing=number > 0)
               for number, part in enumerate(parts)]
    optimizer = get_megatron_optimizer(OptimizerConfig(**peer.only(
        OptimizerConfig, optimizer=args.optimizer, lr=args.lr, min_lr=args.min_lr, weight_decay=args.weight_decay, bf16=config.bf16,
        adam_beta1=args.adam_beta1, adam_beta2=args.adam_beta2, adam_eps=args.adam_eps, sgd_momentum=args.sgd_momentum,
        params_dtype=config.params_dtype, use_distributed_optimizer=IS_DISTRIBUTED, clip_grad=args.clip_grad,
        decoupled_lr=args.decoupled_lr, decoupled_min_lr=args.decoupled_min_lr)), wrapped)
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=args.lr, min_lr=args.min_lr, lr_warmup_steps=8, lr_decay_steps=800, lr_decay_style="constant",
        start_wd=args.weight_decay, end_wd=args.weight_decay, wd_incr_steps=800, wd_incr_style="constant", use_checkpoint_opt_param_scheduler=True,
        override_opt_param_scheduler=False)
    return optimizer, scheduler


def save_legacy(state, optimizer):
    """As Megatron-LM's save_checkpoint does."""
    target = OUT / "legacy" / f"iter_{ITERATION:07}" / mp_rank_model.directory()
    target.mkdir(parents=True, exist_ok=True)
    if IS_DISTRIBUTED:
        optimizer.save_parameter_state(str(target / "distrib_optim.pt"))
    if parallel_state.get_expert_data_parallel_rank() == 0:
        torch.save(state, target / "model_optim_rng.pt")


def load_buffers(rank, optimizer):
    """Everything that the ranks keep is what is stored there."""
    common = dist_checkpointing.load_common_state_dict(LOADED)
    metadata = common["content_metadata"]
    groups = dict(metadata, dp_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    wanted = rank.sharded(metadata)
    wanted["optimizer"] = optimizer.sharded_state_dict(wanted, metadata=groups, is_loading=True)
    at = parallel_state.get_pipeline_model_parallel_rank(), parallel_state.get_tensor_model_parallel_rank()
    wanted["rng_state"] = ShardedObject("rng_state", None, (PIPELINE, TENSOR), at)
    loaded = dist_checkpointing.load(wanted, LOADED, strict="raise_all", validate_access_integrity=False)
    rank.take(loaded)
    with torch.no_grad():  # exact values may be the weights themselves
        optimizer.load_state_dict(loaded["optimizer"])


def train_and_save():
    filesystem_async._results_queue = peer.ResultsQueue()
    filesystem_async._process_memory = lambda: 0
    peer.expert_ranks = EXPERT
    if LOADED:
        peer.keep_steps()
    rank = megatron_ranks.Rank(FOLDER, (TENSOR, PIPELINE, VIRTUAL, EXPERT), describe_run)
    if IS_SLOW:
        fill_vectors(rank.parts)
    optimizer, scheduler = optimizer_of(rank.args, rank.parts)
    for step in range(STEPS):
        fill_gradients(rank.parts, step)
        is_good, _, _ = optimizer.step()
        assert is_good
        scheduler.step(8)
    if LOADED:
        load_buffers(rank, optimizer)
    beginning = rank.beginning(ITERATION, 1e15) | {"opt_param_scheduler": scheduler.state_dict()}
    rest = {"optimizer": optimizer.state_dict(), "rng_state": megatron_ranks.random_states()}
    save_legacy(beginning | rank.weights() | rest, optimizer)
    save_core("core", "fully_reshardable", beginning, rank, optimizer)
    if HAS_BUFFERS:
        save_core("buffers", "dp_reshardable", beginning, rank, optimizer)


def save_core(folder, form, beginning, rank, optimizer):
    metadata = dict(rank.common["content_metadata"], distrib_optim_sharding_type=form,
                    distrib_optim_fully_reshardable_mem_efficient=False, chained_optim_avoid_prefix=True)
    groups = dict(metadata, dp_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    target = OUT / folder / f"iter_{ITERATION:07}"
    target.mkdir(parents=True, exist_ok=True)
    state = beginning | rank.sharded(metadata)
    state["optimizer"] = optimizer.sharded_state_dict(state, metadata=groups)
    dist_checkpointing.save(state, str(target), **peer.only(
        dist_checkpointing.save, content_metadata=metadata, async_strategy="mcore", validate_access_integrity=False))


if __name__ == "__main__":
    megatron_ranks.run(RANKS, train_and_save)
    for form in ("legacy", "core", "buffers") if HAS_BUFFERS else ("legacy", "core"):
        (OUT / form / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))
    print(json.dumps({"files": sorted(str(path.relative_to(OUT / "legacy")) for path in (OUT / "legacy").rglob("*.pt"))}))
    sys.stdout.flush()
    os._exit(0)
