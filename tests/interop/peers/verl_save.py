"""Saves a model as verl's FSDP workers do, one file a rank, from real FSDP on four gloo ranks: verl_save.py MODEL FOLDER MESH.

MESH: `fsdp` (four shards) or `hsdp` (two replicas of two shards) of FSDP2, `fsdp1`, or `fsdp1-without-mesh`, whose state dict has
ShardedTensors. After two steps of AdamW, model and optimizer are
saved.
Prints the SHA-256 of every tensor of the model's state dict ("model") and of what the optimizer keeps ("optim", by
"<parameter>.<field>"; nothing of FSDP1's flat parameters).
"""
import contextlib
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
import transformers
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (FullyShardedDataParallel, ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictType,
                                    fully_shard)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor

import hashing
from ranks import leave_together

RANKS = 4


def whole(value):
    if isinstance(value, ShardedTensor):
        gathered = torch.empty(value.size(), dtype=value.dtype)
        value.gather(0, gathered if dist.get_rank() == 0 else None)
        return gathered
    return value.full_tensor() if isinstance(value, DTensor) else value


def on_rank(rank, model_folder, folder, mesh_kind, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    if mesh_kind == "hsdp":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp"))
    else:
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder, dtype="auto")
    config, form = model.config, contextlib.nullcontext()
    is_fsdp1 = mesh_kind.startswith("fsdp1")
    if is_fsdp1:
        policy = ModuleWrapPolicy({type(model.model.layers[0])})
        model = FullyShardedDataParallel(model, device_mesh=mesh if mesh_kind == "fsdp1" else None, auto_wrap_policy=policy,
                                         device_id=torch.device("cpu"), use_orig_params=False)
        form = FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=True),
                                                        ShardedOptimStateDictConfig(offload_to_cpu=True))
    else:
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.02)
    tokens = torch.arange(32).reshape(2, 16) + rank
    for _ in range(2):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with form:
        state = model.state_dict()
        torch.save(state, folder / f"model_world_size_{RANKS}_rank_{rank}.pt")
        torch.save(optimizer.state_dict(), folder / f"optim_world_size_{RANKS}_rank_{rank}.pt")
    digests = {"model": {key: hashing.describe(whole(value)) for key, value in state.items()}, "optim": {}}
    for name, parameter in model.named_parameters() if not is_fsdp1 else []:
        for field, value in optimizer.state[parameter].items():
            digests["optim"][f"{name}.{field}"] = hashing.describe(whole(value))
    if rank == 0:
        (folder / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 1 if is_fsdp1 else 2, "world_size": RANKS}))
        config.save_pretrained(folder / "huggingface")
        (folder.parent / "digests.json").write_text(json.dumps(digests))
    leave_together(RANKS)


def main():
    model_folder, folder, mesh_kind = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "store")
        torch.multiprocessing.start_processes(on_rank, (model_folder, folder, mesh_kind, store), nprocs=RANKS, start_method="fork")
    print((folder.parent / "digests.json").read_text())


if __name__ == "__main__":
    main()
