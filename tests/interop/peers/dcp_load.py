"""Loads a DCP checkpoint with real PyTorch and prints what came out as JSON: key -> shape, dtype, sha256.

    dcp_load.py plain DIR              dcp.load into plain tensors
    dcp_load.py plain_each DIR...      the same of several checkpoints: DIR -> what came out
    dcp_load.py dtensor DIR RANKS DIM  dcp.load into DTensors sharded along DIM on RANKS gloo ranks
    dcp_load.py torch_save DIR FILE    dcp_to_torch_save, then torch.load
    dcp_load.py megatron DIR           Megatron's first request: args, iteration and checkpoint_version, strictly
"""
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

import hashing
from ranks import leave_together


def read_metadata(folder):
    return dcp.FileSystemReader(folder).read_metadata().state_dict_metadata


def plain(folder):
    state = {}
    for key, entry in read_metadata(folder).items():
        is_tensor = isinstance(entry, TensorStorageMetadata)
        state[key] = torch.empty(entry.size, dtype=entry.properties.dtype) if is_tensor else None
    dcp.load(state, checkpoint_id=folder)
    return {"tensors": {k: hashing.describe(v) for k, v in state.items() if torch.is_tensor(v)},
            "objects": {k: v for k, v in state.items() if isinstance(v, (int, float, str, list, dict))}}


def plain_each(*folders):
    return {folder: plain(folder) for folder in folders}


def empty_dtensor(size, dtype, mesh, dim):
    """A DTensor cut as torch cuts: ceil(n / ranks) rows for each rank until they are used up."""
    try:
        from torch.distributed.tensor import DTensor, Replicate, Shard
    except ImportError:  # torch 2.4
        from torch.distributed._tensor import DTensor, Replicate, Shard
    whole = torch.empty(size, dtype=dtype, device="meta")
    if dim >= whole.ndim:
        local = torch.empty(size, dtype=dtype)
        return DTensor.from_local(local, mesh, [Replicate()], run_check=False)
    step = -(-size[dim] // mesh.size())
    at = mesh.get_local_rank()
    begin, end = min(at * step, size[dim]), min((at + 1) * step, size[dim])
    local_size = list(size)
    local_size[dim] = end - begin
    return DTensor.from_local(torch.empty(local_size, dtype=dtype), mesh, [Shard(dim)], run_check=False,
                              shape=torch.Size(size), stride=whole.stride())


def dtensor_rank(rank, ranks, folder, dim, store, out):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    state = {}
    for key, entry in read_metadata(folder).items():
        if isinstance(entry, TensorStorageMetadata):
            state[key] = empty_dtensor(list(entry.size), entry.properties.dtype, mesh, dim)
    dcp.load(state, checkpoint_id=folder)
    locals_ = {k: v.to_local() for k, v in state.items()}
    gathered = [None] * ranks if rank == 0 else None
    dist.gather_object({k: (list(t.shape), hashing.tensor_bytes(t)) for k, t in locals_.items()}, gathered, dst=0)
    if rank == 0:
        described = {}
        for key, value in state.items():
            parts = []
            for shape, data in (g[key] for g in gathered):
                flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
                parts.append(flat.view(value.dtype).reshape(shape))
            sharded = dim < value.ndim
            described[key] = hashing.describe(torch.cat(parts, dim) if sharded else parts[0])
            described[key]["rows"] = [p.shape[dim] for p in parts] if sharded else []
        pathlib.Path(out).write_text(json.dumps({"tensors": described}))
    leave_together(ranks)


def dtensor(folder, ranks, dim):
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "out.json")
        arguments = (int(ranks), folder, int(dim), os.path.join(scratch, "store"), out)
        torch.multiprocessing.start_processes(dtensor_rank, arguments, nprocs=int(ranks), start_method="fork")
        return json.loads(pathlib.Path(out).read_text())


def flattened(value, prefix=""):
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from flattened(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def torch_save(folder, target):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(folder, target)
    state = torch.load(target, weights_only=False)
    return {"tensors": {k: hashing.describe(v) for k, v in flattened(state) if torch.is_tensor(v)}}


def megatron(folder):
    state = {"args": None, "iteration": None, "checkpoint_version": None}
    dcp.load(state, checkpoint_id=folder)  # strict: a missing key raises
    return {"args_type": f"{type(state['args']).__module__}.{type(state['args']).__name__}", "args": vars(state["args"]),
            "iteration": state["iteration"], "checkpoint_version": state["checkpoint_version"]}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:]), default=repr))
