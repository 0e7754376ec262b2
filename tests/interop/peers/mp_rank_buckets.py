"""Trains the parameters of a saved model on Megatron-Core 0.6's own buffers and buckets, and saves them as it does.

    mp_rank_buckets.py CORE RUN OUT RANKS BUCKET

RUN is the file `model_optim_rng.pt` of one rank. A module with its parameters gets the optimizers of CORE on RANKS data-parallel ranks, and
steps with random gradients: the distributed one, whose buckets are full at BUCKET elements, and one that is not. OUT/distributed and OUT/plain
are what Megatron-LM of that time saves of them.
"""
import json
import os
import pathlib
import sys
import tempfile
import types
import zlib

CORE, RUN, OUT, RANKS, BUCKET = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, CORE)

import no_gpu

no_gpu.install()
import torch


class CountingAdam(torch.optim.AdamW):
    """Apex's Adam counts updates in its groups."""

    def step(self, *arguments, **named):
        result = super().step(*arguments, **named)
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        return result


def stand_in(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


# Apex needs a GPU; of it only the class of the optimizer is used here.
stand_in("apex")
stand_in("apex.optimizers", FusedAdam=CountingAdam, FusedSGD=torch.optim.SGD)
stand_in("apex.multi_tensor_apply", multi_tensor_applier=None)
stand_in("amp_C")

from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.transformer_config import TransformerConfig

from ranks import leave_together

STEPS = 3


def module_of(state):
    """The parameters in the order of the state dict. A module's names have no dots."""
    module = torch.nn.Module()
    for key, value in state["model"].items():
        if isinstance(value, torch.Tensor) and not key.endswith("_extra_state"):
            module.register_parameter(key.replace(".", "/"), torch.nn.Parameter(value.clone()))
    return module


def train(state, kind):
    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1, bf16=True, params_dtype=torch.bfloat16)
    is_distributed = kind == "distributed"
    module = module_of(state)
    wrapped = DistributedDataParallel(
        config, module, data_parallel_group=parallel_state.get_data_parallel_group(with_context_parallel=True),
        accumulate_allreduce_grads_in_fp32=True, overlap_grad_reduce=True, use_distributed_optimizer=is_distributed, bucket_size=BUCKET)
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=0.01, min_lr=0.001, weight_decay=0.1, bf16=True, params_dtype=torch.bfloat16, clip_grad=0.0,
        use_distributed_optimizer=is_distributed), [wrapped])
    for step in range(STEPS):
        for name, parameter in module.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(f"{step} {name}".encode()))
            parameter.main_grad.copy_(torch.randn(parameter.shape, generator=generator))
        optimizer.step()
    target = OUT / kind / "iter_0000007" / "mp_rank_00"
    target.mkdir(parents=True, exist_ok=True)
    if is_distributed:
        optimizer.save_parameter_state(str(target / "distrib_optim.pt"))
    if torch.distributed.get_rank() == 0:
        weights = {name.replace("/", "."): parameter.detach().clone() for name, parameter in module.named_parameters()}
        torch.save(state | {"model": state["model"] | weights, "optimizer": optimizer.state_dict()}, target / "model_optim_rng.pt")
        (OUT / kind / "latest_checkpointed_iteration.txt").write_text("7")


def run(rank, store):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    parallel_state.initialize_model_parallel()
    state = torch.load(RUN, weights_only=False)
    for kind in ("distributed", "plain"):
        train(state, kind)
    leave_together(RANKS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        torch.multiprocessing.start_processes(run, (os.path.join(scratch, "store"),), nprocs=RANKS, start_method="fork")
    buffers = torch.load(OUT / "distributed/iter_0000007/mp_rank_00/distrib_optim.pt", weights_only=False)
    print(json.dumps({"buckets": [len(fields["param"]) for fields in buffers[0].values()]}))
