"""Makes checkpoints with real PyTorch, of names, shapes and values that follow from a seed, and accounts of them.

    torch_make.py OUT SEED

Every case is OUT/<case>/ckpt (a folder or a file, see `path`) with OUT/<case>/expected.json: tensors, objects, path.
The last line printed is the list of cases.
"""
import collections
import json
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import hashing
from ranks import leave_together

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
except ImportError:  # torch 2.4
    from torch.distributed._tensor import DTensor, Replicate, Shard, distribute_tensor

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]
WORDS = ["alpha", "beta", "weight", "bias", "layers", "0", "17", "gate proj", "ünïcode", "a/b", "UPPER", "x" * 70]


class Draw:
    """Random names, shapes and values."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def key(self):
        return ".".join(self.rng.choice(WORDS) for _ in range(self.rng.randint(1, 4)))

    def shape(self):
        return [self.rng.choice([0, 1, 2, 3, 5, 7, 16, 33]) for _ in range(self.rng.randint(0, 4))]

    def tensor(self, shape=None, dtype=None):
        shape = self.shape() if shape is None else shape
        dtype = dtype or self.rng.choice(DTYPES)
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.torch).bool()
        if not dtype.is_floating_point and not dtype.is_complex:
            return torch.randint(0, 127, shape, generator=self.torch).to(dtype)
        return torch.randn(shape, generator=self.torch).to(dtype)

    def tensors(self, count):
        return {f"{self.key()}.{i}": self.tensor() for i in range(count)}

    def view_of(self, tensor):
        """The same kind of tensor, not laid out as a fresh one is."""
        return self.rng.choice([lambda t: t.t().contiguous().t() if t.ndim == 2 else t,
                                lambda t: t.flip(0) if t.ndim else t,
                                lambda t: t[..., ::2] if t.ndim else t])(tensor)


def rendered(value):
    """The `$` notation of `ckpt-inspect meta`, as far as these cases need it."""
    if isinstance(value, tuple):
        return {"$tuple": [rendered(v) for v in value]}
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, list):
        return [rendered(v) for v in value]
    if isinstance(value, collections.OrderedDict):
        return {"$ordered_dict": [[rendered(k), rendered(v)] for k, v in value.items()]}
    if isinstance(value, dict):
        if all(isinstance(k, str) for k in value):
            return {k: rendered(v) for k, v in value.items()}
        return {"$dict": [[rendered(k), rendered(v)] for k, v in value.items()]}
    return value


def account(folder, tensors, objects=None, path="ckpt"):
    text = {"path": path, "tensors": {k: hashing.describe(t) for k, t in tensors.items()}, "objects": objects or {}}
    (folder / "expected.json").write_text(json.dumps(text))


def case_folder(out, name):
    folder = out / name
    folder.mkdir(parents=True)
    return folder


def flat(state):
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict

    values, _ = flatten_state_dict(state)
    tensors = {k: v for k, v in values.items() if torch.is_tensor(v)}
    return tensors, {k: rendered(v) for k, v in values.items() if not torch.is_tensor(v)}


def nested(out, draw):
    folder = case_folder(out, "nested")
    state = {"model": draw.tensors(20), "optim": {"state": {i: {"exp_avg": draw.tensor(), "step": torch.tensor(float(i))} for i in range(3)},
             "param_groups": [{"lr": 0.125, "betas": (0.9, 0.95), "params": [0, 1, 2]}]},
             "views": {f"v{i}": draw.view_of(draw.tensor([4, 6], torch.float32)) for i in range(6)},
             "step": 7, "note": "grüße", "nothing": None, "big": 2**40, "ratio": 0.1, "flags": [True, False], "blob": b"\x00\xff"}
    dcp.save(state, checkpoint_id=str(folder / "ckpt"))
    account(folder, *flat(state))


def writer_options(out, draw):
    for name, options in {"per_item": {"single_file_per_rank": False}, "threads": {"thread_count": 3}}.items():
        folder = case_folder(out, "writer_" + name)
        state = draw.tensors(15)
        dcp.save(state, storage_writer=dcp.FileSystemWriter(str(folder / "ckpt"), **options))
        account(folder, state)


def zstd(out, draw):
    try:
        from torch.distributed.checkpoint._extension import ZStandard
        extensions = [ZStandard()]
    except (ImportError, ValueError):
        return
    folder = case_folder(out, "zstd")
    state = {"zeros": torch.zeros(100, 100), **draw.tensors(12), "text": "compressed too"}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(str(folder / "ckpt"), _extensions=extensions))
    account(folder, *flat(state))


def hugging_face_writer(out, draw):
    try:
        from torch.distributed.checkpoint import HuggingFaceStorageWriter
    except ImportError:
        return
    folder = case_folder(out, "hugging_face_writer")
    safe = [torch.float32, torch.bfloat16, torch.int64, torch.float8_e4m3fn]
    state = {f"m.{i}": draw.tensor([draw.rng.randint(1, 9), 5], draw.rng.choice(safe)) for i in range(9)}
    mapping = {k: 1 + i % 3 for i, k in enumerate(state)}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(path=str(folder / "ckpt"), fqn_to_index_mapping=mapping))
    account(folder, state)


def torch_save(out, draw):
    for name, options in {"zip": {}, "legacy": {"_use_new_zipfile_serialization": False}}.items():
        folder = case_folder(out, "torch_save_" + name)
        base = draw.tensor([6, 4], torch.float32)
        state = {"model": collections.OrderedDict(draw.tensors(10)), "shared": {"a": base, "b": base[2:], "t": base.t()}, "epoch": 3}
        torch.save(state, folder / "model.pt", **options)
        tensors = {f"model.{k}": v for k, v in state["model"].items()} | {f"shared.{k}": v for k, v in state["shared"].items()}
        account(folder, tensors, path="model.pt")


def safetensors_file(out, draw):
    try:
        import safetensors.torch
    except ImportError:
        return
    folder = case_folder(out, "safetensors")
    state = {k: v for k, v in draw.tensors(25).items() if v.dtype != torch.complex64}
    safetensors.torch.save_file(state, folder / "one.safetensors", metadata={"format": "pt", "note": "live"})
    account(folder, state, path="one.safetensors")


def sharded_rank(rank, ranks, out, seed, store):
    """A training state as FSDP2 and tensor parallelism leave it: DTensors on a mesh, moments beside the weights."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    draw = Draw(seed)  # the same on every rank
    flat_mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    square = dist.device_mesh.init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "tp"))
    layouts = [(flat_mesh, [Shard(0)]), (flat_mesh, [Shard(1)]), (flat_mesh, [Replicate()]), (square, [Shard(0), Shard(1)]),
               (square, [Replicate(), Shard(0)]), (square, [Shard(0), Shard(0)])]
    whole, state = {}, {}
    for i in range(24):
        mesh, placements = layouts[i % len(layouts)]
        shape = [draw.rng.randint(1, 23), draw.rng.randint(1, 9)] + [draw.rng.randint(1, 4)] * (i % 2)
        weight = draw.tensor(shape, draw.rng.choice([torch.float32, torch.bfloat16]))
        for key in (f"model.layers.{i}.weight", f"optim.state.layers.{i}.weight.exp_avg"):
            whole[key] = weight if key.startswith("model") else weight.float() * 0.5
            state[key] = distribute_tensor(whole[key], mesh, placements)
    whole["model.plain"] = state["model.plain"] = draw.tensor([3, 3], torch.float32)
    dcp.save(state, checkpoint_id=str(out / "sharded" / "ckpt"))
    if rank == 0:
        account(out / "sharded", whole)
    leave_together(ranks)


def sharded(out, seed):
    case_folder(out, "sharded")
    with tempfile.TemporaryDirectory() as scratch:
        torch.multiprocessing.start_processes(sharded_rank, (4, out, seed, os.path.join(scratch, "store")), nprocs=4, start_method="fork")


def main():
    out, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    draw = Draw(seed)
    for make in (nested, writer_options, zstd, hugging_face_writer, torch_save, safetensors_file):
        make(out, draw)
    sharded(out, seed)
    print(json.dumps(sorted(p.name for p in out.iterdir())))


if __name__ == "__main__":
    main()
