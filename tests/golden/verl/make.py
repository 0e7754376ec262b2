#!/usr/bin/env python3
"""Writes what four ranks of a verl FSDP worker save, and what is in it: make.py FOLDER [ADDEND | optimizer].

As verl does: each rank saves its state dict of DTensors by torch.save. Real torch, gloo, a mesh of 2 x 2.
With `optimizer`, two ranks save a model with a tied weight after two steps of AdamW, and the optimizer's state_dict.
"""
import hashlib
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "interop"))

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
except ImportError:
    from torch.distributed._tensor import Replicate, Shard, distribute_tensor

from ranks import leave_together


def whole(addend):
    """Key -> (tensor, placements on the mesh, whether it lies on the inner dim of the mesh alone)."""
    def values(*shape, dtype=torch.float32):
        return (torch.arange(torch.Size(shape).numel()).reshape(shape) + addend).to(dtype)

    return {"model.rows": (values(7, 3), [Replicate(), Shard(0)], False),
            "model.columns": (values(4, 5, dtype=torch.bfloat16), [Replicate(), Shard(1)], False),
            "model.twice": (values(5, 2), [Shard(0), Shard(0)], False),
            "model.both": (values(3, 3), [Shard(1), Shard(0)], False),
            "model.short": (values(1), [Replicate(), Shard(0)], False),
            "model.replica": (values(2, 2), [Replicate(), Replicate()], False),
            "model.inner": (values(6), [Shard(0)], True),
            "model.parameter": (values(6, dtype=torch.float16), [Replicate(), Shard(0)], False),
            "model.plain": (values(2, dtype=torch.int64), None, False)}


def on_rank(rank, folder, store, addend):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp"))
    state = {}
    for key, (tensor, placements, is_inner) in whole(addend).items():
        state[key] = distribute_tensor(tensor, mesh["fsdp"] if is_inner else mesh, placements) if placements else tensor
    state["model.parameter"] = torch.nn.Parameter(state["model.parameter"], requires_grad=False)
    torch.save(state, folder / f"model_world_size_4_rank_{rank}.pt")
    if rank == 0:
        torch.save({"step": torch.tensor(3.0)}, folder / f"optim_world_size_4_rank_{rank}.pt")
    leave_together(4)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 3)
        self.inner = torch.nn.Linear(3, 3)
        self.head = torch.nn.Linear(3, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.inner(self.embed(tokens)))


def on_rank_with_optimizer(rank, folder, store):
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(1)
    model = Tied()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.99))
    for _ in range(2):
        model(torch.arange(5) + rank).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(model.state_dict(), folder / f"model_world_size_2_rank_{rank}.pt")
    torch.save(optimizer.state_dict(), folder / f"optim_world_size_2_rank_{rank}.pt")
    state = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        state |= {f"optim.state.{name}.{field}": value for field, value in optimizer.state[parameter].items()}
    state = {key: value.full_tensor() if hasattr(value, "full_tensor") else value for key, value in state.items()}
    if rank == 0:
        torch.save(state, folder / "whole.pt")
    leave_together(2)


def main():
    folder, kind = pathlib.Path(sys.argv[1]), (sys.argv[2:] or ["0"])[0]
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        store = os.path.join(scratch, "store")
        if kind == "optimizer":
            torch.multiprocessing.spawn(on_rank_with_optimizer, (folder, store), nprocs=2)
            expected = torch.load(folder / "whole.pt")
            (folder / "whole.pt").unlink()
        else:
            torch.multiprocessing.spawn(on_rank, (folder, store, int(kind)), nprocs=4)
            expected = {key: tensor for key, (tensor, _, _) in whole(int(kind)).items()}
    tensors = {}
    for key, tensor in expected.items():
        elements = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        tensors[key] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
                        "sha256": hashlib.sha256(elements).hexdigest()}
    account = {"torch": torch.__version__, "tensors": tensors}
    (folder / "expected.json").write_text(json.dumps(account, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
