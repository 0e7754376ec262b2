#!/usr/bin/env python3
"""Writes what four ranks of a verl FSDP worker save, and what is in it: make.py FOLDER [ADDEND].

As verl does: each rank saves its state dict of DTensors by torch.save. Real torch, gloo, a mesh of 2 x 2.
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


def main():
    folder, addend = pathlib.Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0])
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        torch.multiprocessing.spawn(on_rank, (folder, os.path.join(scratch, "store"), addend), nprocs=4)
    tensors = {}
    for key, (tensor, _, _) in whole(addend).items():
        elements = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        tensors[key] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
                        "sha256": hashlib.sha256(elements).hexdigest()}
    account = {"torch": torch.__version__, "tensors": tensors}
    (folder / "expected.json").write_text(json.dumps(account, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
