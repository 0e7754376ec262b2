"""Lets Megatron-Core run on a machine without a GPU, for this process: device "cuda" is the CPU.

Megatron-Core names device "cuda" in tensor factories and uses streams and events. What is replaced here takes no part in
writing or reading a checkpoint.
"""
import contextlib
import functools
import struct

import torch
from torch.overrides import TorchFunctionMode


class CudaIsCpu(TorchFunctionMode):
    @staticmethod
    def _device(value):
        named = isinstance(value, torch.device) and value.type == "cuda" or isinstance(value, str) and value.startswith("cuda")
        return "cpu" if named else value

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.Tensor.type and len(args) == 1 and not kwargs:
            return function(*args).replace("torch.", "torch.cuda.", 1)
        if "device" in kwargs:
            kwargs["device"] = self._device(kwargs["device"])
        if kwargs.get("pin_memory"):
            del kwargs["pin_memory"]
        if function is torch.Tensor.to:
            args = tuple(self._device(a) for a in args)
        return function(*args, **kwargs)


class Nothing:
    """A stream or an event."""
    cuda_stream = 0

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


class Coalesced:
    def append(self, work):
        if work is not None:
            work.wait()

    def wait(self):
        pass


@contextlib.contextmanager
def one_by_one(group=None, device=None, async_ops=False):
    yield Coalesced()


def no_compiler(*args, **kwargs):
    raise RuntimeError("code for a GPU is not compiled")  # Megatron-Core goes on without it


@functools.cache
def install():
    """Does nothing in a process that it was called in, or in a fork of one."""
    import torch._dynamo  # looks at classes of torch.cuda while it is imported
    import torch.utils.cpp_extension

    # Megatron-Core 0.15 compiles an allocator when it is imported, which takes minutes where there is a toolkit.
    torch.utils.cpp_extension.load_inline = no_compiler
    for name in ("empty", "empty_like"):  # torch 2.15 stores `strides`, which Megatron-Core passes on
        original = getattr(torch, name)
        setattr(torch, name, lambda *args, strides=None, _original=original, **kwargs: _original(*args, **kwargs))
    state = {"rng": torch.frombuffer(bytearray(struct.pack("<QQ", 1234, 0)), dtype=torch.uint8)}
    cuda = torch.cuda
    cuda.current_device = lambda: "cpu"
    # Functions of their own: torch tells them apart by identity.
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all"):
        setattr(cuda, name, lambda *a, _name=name, **k: None)
    cuda.device_count = lambda: 1
    cuda.get_device_capability = lambda *a, **k: (9, 0)
    cuda.Stream = cuda.Event = Nothing
    cuda.stream = lambda *a, **k: contextlib.nullcontext()
    cuda.current_stream = lambda *a, **k: Nothing()
    cuda.default_stream = lambda *a, **k: Nothing()
    cuda.is_current_stream_capturing = lambda: False
    cuda.get_rng_state = lambda *a, **k: state["rng"].clone()
    cuda.set_rng_state = lambda value, *a, **k: state.update(rng=value.clone())
    cuda.nvtx.range_push = lambda *a, **k: None
    cuda.nvtx.range_pop = lambda *a, **k: None
    cuda.memory_allocated = lambda *a, **k: 0
    cuda.memory_reserved = lambda *a, **k: 0
    torch.Tensor.cuda = lambda self, *a, **k: self
    torch.nn.Module.cuda = lambda self, *a, **k: self
    torch.distributed._coalescing_manager = torch.distributed.distributed_c10d._coalescing_manager = one_by_one
    CudaIsCpu().__enter__()
