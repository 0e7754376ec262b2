"""Loads a file of torch.save and prints its tensors as JSON: path, joined with dots -> shape, dtype, sha256.

    torch_load.py FILE           with weights_only
    torch_load.py FILE classes   without, where the classes of Megatron-Core are stand-ins
"""
import json
import pathlib
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

import hashing


class AnyMember:
    """A member of any enum."""

    def __init__(self, value):
        self.value = value


class StandIn(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return AnyMember


def tensors_in(value, path=()):
    if isinstance(value, torch.Tensor):
        yield ".".join(path), value
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from tensors_in(below, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for position, below in enumerate(value):
            yield from tensors_in(below, (*path, str(position)))


if __name__ == "__main__":
    needs_classes = sys.argv[2:] == ["classes"]
    if needs_classes:
        for name in ("megatron", "megatron.core", "megatron.core.enums", "megatron.core.transformer", "megatron.core.transformer.enums"):
            sys.modules[name] = StandIn(name)
    state = torch.load(sys.argv[1], weights_only=not needs_classes)
    print(json.dumps({path: hashing.describe(tensor) for path, tensor in tensors_in(state)}))
