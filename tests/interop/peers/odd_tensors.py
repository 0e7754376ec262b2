"""Writes what a plain state dict does not hold: `odd_tensors.py FOLDER`; prints the digests of the tensors inside as JSON."""
import dataclasses
import hashlib
import json
import pathlib
import sys
import tempfile
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.distributed
import torch.distributed.checkpoint
import torch.multiprocessing

try:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
except ImportError:
    from torch.distributed._tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh

from ranks import leave_together

WHOLE = torch.arange(12.0).reshape(3, 4)


@dataclasses.dataclass
class State:
    weight: torch.Tensor
    step: int


def sha256(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


class Packed(torch.Tensor):
    """A tensor in two, as libraries that quantise keep one."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __reduce_ex__(self, protocol):
        return torch._tensor._rebuild_from_type_v2, (Packed, Packed, (self.codes, self.scale), {})

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.is_pinned.default:
            return False
        return Packed(args[0].codes, args[0].scale)  # detach, clone, view: all that a save asks for


class WeightWithDynamicFloat8CastTensor(torch.Tensor):
    """Pickled as torchao's class of this name, without torchao: FSDP2 casts it to float8 when it gathers it. The weight is `_tensor`."""

    __module__ = "torchao.float8.fsdp_utils"

    @staticmethod
    def __new__(cls, tensor):
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, strides=tensor.stride(), dtype=tensor.dtype)

    def __init__(self, tensor):
        self._tensor, self._linear_mm_config, self._dtype, self._precomputed_scale = tensor, None, torch.float8_e4m3fn, None

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.is_pinned.default:
            return False
        return cls(function(args[0]._tensor, *args[1:], **(kwargs or {})))


def offer_torchao():
    """So that pickle finds the class where torchao has it."""
    for name in ("torchao", "torchao.float8", WeightWithDynamicFloat8CastTensor.__module__):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[name].WeightWithDynamicFloat8CastTensor = WeightWithDynamicFloat8CastTensor


def on_rank(rank, folder, store):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    pair = torch.arange(16.0).reshape(4, 4)
    state = {"shard": distribute_tensor(pair, mesh, [Shard(0)]), "replica": distribute_tensor(pair, mesh, [Replicate()]),
             "summand": DTensor.from_local(pair.clone(), mesh, [Partial()])}
    if rank == 0:
        torch.save(state, folder / "two_ranks.pt")
    leave_together(2)


def write(folder, store):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    torch.save({"w": distribute_tensor(WHOLE, mesh, [Shard(0)]),
                "p": torch.nn.Parameter(distribute_tensor(WHOLE + 1, mesh, [Replicate()]))}, folder / "one_rank.pt")
    offer_torchao()
    torch.save({"w": WeightWithDynamicFloat8CastTensor(WHOLE),
                "d": DTensor.from_local(WeightWithDynamicFloat8CastTensor(WHOLE + 1), mesh, [Shard(0)])}, folder / "float8.pt")
    torch.distributed.destroy_process_group()
    sparse = WHOLE.to_sparse()
    torch.save({"s": sparse, "w": WHOLE}, folder / "sparse.pt")
    torch.save({"state": State(WHOLE, 3), "w": WHOLE + 1}, folder / "dataclass.pt")
    torch.save(State(WHOLE, 3), folder / "root.pt")
    torch.save({"storage": WHOLE.untyped_storage()}, folder / "storage.pt")
    torch.save({"a.b": WHOLE, "a": {"b": WHOLE + 1}, 1: WHOLE + 2, "1": WHOLE + 3, "x.y": WHOLE}, folder / "names.pt")
    packed = Packed(torch.arange(12, dtype=torch.int8).reshape(3, 4), torch.ones(3))
    torch.save({"packed": packed, "w": WHOLE}, folder / "packed.pt")
    torch.distributed.checkpoint.save({"packed": packed, "w": WHOLE}, checkpoint_id=str(folder / "packed"))
    torch.distributed.checkpoint.save({"w": WeightWithDynamicFloat8CastTensor(WHOLE)}, checkpoint_id=str(folder / "float8"))
    module = torch.nn.Linear(4, 3)
    torch.jit.script(module).save(str(folder / "script.pt"))
    torch.export.save(torch.export.export(module, (WHOLE,)), str(folder / "program.pt2"))
    print(json.dumps({"whole": sha256(WHOLE), "plus1": sha256(WHOLE + 1), "plus2": sha256(WHOLE + 2), "plus3": sha256(WHOLE + 3),
                      "pair": sha256(torch.arange(16.0).reshape(4, 4)), "half": sha256(torch.arange(8.0).reshape(2, 4)),
                      "indices": sha256(sparse.indices()), "values": sha256(sparse.values())}))


def main():
    folder = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        torch.multiprocessing.start_processes(on_rank, (folder, pathlib.Path(scratch, "two_ranks")), nprocs=2, start_method="fork")
        write(folder, pathlib.Path(scratch, "one_rank"))


if __name__ == "__main__":
    main()
