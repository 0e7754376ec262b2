"""One rank of tests/megatron/megatron_rank.py on a machine without a GPU, over gloo. Takes its arguments.

What is replaced takes no part in reading, writing or computing: no_gpu.py says the rest.
"""
import os
import pathlib
import runpy
import sys
import types
import typing

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

import no_gpu

if not hasattr(typing, "override"):  # Python 3.12 has it
    typing.override = lambda function: function
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


class NumberIsCpu(TorchFunctionMode):
    """Megatron-FSDP names devices by number, too."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        if function is torch.Tensor.to:
            args = tuple("cpu" if type(argument) is int else argument for argument in args)
        return function(*args, **kwargs)


def replace(name, make):
    """torch.distributed's function becomes make(function), wherever Megatron finds it."""
    function = make(getattr(dist, name))
    setattr(dist, name, function)
    setattr(dist.distributed_c10d, name, function)


def over_gloo(function):
    def call(*args, backend=None, pg_options=None, device_id=None, **kwargs):
        return function(*args, backend="gloo", **kwargs)

    return call


def at_once(function):
    """Megatron waits for calls that belong together by an event of them all, which is none here."""
    def call(*args, **kwargs):
        work = function(*args, **kwargs)
        if work is not None:
            work.wait()
        return work

    return call


def with_listed_rows(function):
    """Numbers of rows that Megatron leaves in tensors, as those of a GPU are not."""
    def call(output, rows, output_split_sizes=None, input_split_sizes=None, **kwargs):
        sizes = [size.tolist() if isinstance(size, torch.Tensor) else size for size in (output_split_sizes, input_split_sizes)]
        return function(output, rows, *sizes, **kwargs)

    return call


def install():
    no_gpu.install()
    no_gpu.Nothing.record_event = lambda self, *args, **kwargs: no_gpu.Nothing()
    cuda = torch.cuda
    cuda.current_device = lambda: 0
    cuda.is_available = lambda: True
    cuda.get_device_name = lambda *args: "CPU"
    cuda.get_device_properties = lambda *args: types.SimpleNamespace(name="CPU", major=9, minor=0, multi_processor_count=1, total_memory=1 << 36)
    cuda.random.get_rng_state, cuda.random.set_rng_state = cuda.get_rng_state, cuda.set_rng_state
    cuda._lazy_init = lambda: None
    cuda._lazy_call = lambda function, **kwargs: None
    for name in ("init_process_group", "new_group"):
        replace(name, over_gloo)
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"):
        replace(name, at_once)
    replace("all_to_all_single", with_listed_rows)
    NumberIsCpu().__enter__()


if __name__ == "__main__":
    install()
    program = pathlib.Path(__file__).resolve().parents[2] / "megatron/megatron_rank.py"
    sys.path.insert(0, str(program.parent))
    runpy.run_path(str(program), run_name="__main__")
