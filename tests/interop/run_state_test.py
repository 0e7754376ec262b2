"""What a run of ours stores beside weights and moments: real libraries take it, and it is what they make themselves."""
import argparse
import io
import random
import struct
import subprocess

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import BytesStorageMetadata

from tools import BIN

STATES = "rng_state.(0, 0).0."
GROUP = "optimizer.param_to_group_meta.module.module.module.decoder.final_layernorm.weight."


def load(folder):
    """Every entry of a folder, as torch loads it."""
    described = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    entries = {key: io.BytesIO() if isinstance(entry, BytesStorageMetadata) else
               torch.empty(entry.size, dtype=entry.properties.dtype) for key, entry in described.items()}
    dcp.load(entries, checkpoint_id=folder, no_dist=True)
    return entries


@pytest.fixture(scope="session")
def ours(tmp_path_factory):
    def load_ours(seed):
        folder = tmp_path_factory.mktemp("run") / "ckpt"
        subprocess.run([BIN / "run-state-peer", folder, str(seed)], check=True, capture_output=True)
        return load(folder)
    return load_ours


@pytest.mark.parametrize("seed", [0, 1, 1234, 2**31, 2**32 - 1, 2**32, 2**63 - 1])
def test_states_are_those_of_the_seed_and_can_be_set(ours, seed):
    entries = ours(seed)

    random.seed(seed)
    expected = random.getstate()
    assert entries[STATES + "random_rng_state"] == expected
    draws = [random.random(), random.gauss(0, 1)]
    random.seed()
    random.setstate(entries[STATES + "random_rng_state"])
    assert [random.random(), random.gauss(0, 1)] == draws

    numpy.random.seed(seed % 2**32)  # numpy takes no more
    expected = numpy.random.get_state()
    state = entries[STATES + "np_rng_state"]
    assert [type(part) for part in state] == [type(part) for part in expected]
    assert state[1].dtype == expected[1].dtype and numpy.array_equal(state[1], expected[1])
    assert state[::2] + state[3:4] == expected[::2] + expected[3:4]
    draws = numpy.random.standard_normal(5)
    numpy.random.seed(5)
    numpy.random.set_state(state)
    assert numpy.array_equal(numpy.random.standard_normal(5), draws)

    torch.manual_seed(seed)
    assert torch.equal(entries[STATES + "torch_rng_state"], torch.get_rng_state())
    draws = torch.randn(700)
    torch.manual_seed(seed + 1)
    torch.set_rng_state(entries[STATES + "torch_rng_state"])
    assert torch.initial_seed() == seed
    assert torch.equal(torch.randn(700), draws)

    # Seed and numbers drawn; the streams of Megatron's tracker have seeds of their own.
    for name, offset in {"cuda_rng_state": 0, "rng_tracker_states.data-parallel-rng": 0,
                         "rng_tracker_states.model-parallel-rng": 2718, "rng_tracker_states.expert-parallel-rng": 1024}.items():
        assert struct.unpack("<QQ", bytes(entries[STATES + name].tolist())) == (seed + offset, 0), name


def test_objects_have_the_types_that_megatron_gives_them(ours):
    entries = ours(1)
    types = {key: type(value) for key, value in entries.items()}
    expected = {"args": argparse.Namespace, "checkpoint_version": float, "iteration": int,
                "num_floating_point_operations_so_far": float}
    expected |= {"opt_param_scheduler." + field: kind for field, kind in {
        "max_lr": float, "min_lr": float, "lr_warmup_steps": int, "num_steps": int, "lr_decay_style": str,
        "lr_decay_steps": int, "start_wd": float, "end_wd": float, "wd_incr_style": str, "wd_incr_steps": int}.items()}
    expected |= {GROUP + field: kind for field, kind in {
        "is_expert_parallel": bool, "default_config": bool, "wd_mult": float, "lr_mult": float, "is_decoupled_lr": bool,
        "max_lr": float, "min_lr": float, "lr": float, "bias_correction": bool, "betas": tuple, "eps": float,
        "weight_decay": float, "step": int}.items()}
    assert {key: types.get(key) for key in expected} == expected
    assert vars(entries["args"]) == {"num_layers": 2, "lr": 0.004, "bf16": True, "moe_layer_freq": [0, 1], "load": None,
                                     "optimizer": "adam"}


def test_the_nested_state_dict_is_megatrons(ours, tmp_path):
    subprocess.run([BIN / "run-state-peer", tmp_path / "ckpt", "1"], check=True, capture_output=True)
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    dcp_to_torch_save(tmp_path / "ckpt", tmp_path / "whole.pt")
    state = torch.load(tmp_path / "whole.pt", weights_only=False)
    assert set(state) == {"args", "checkpoint_version", "iteration", "num_floating_point_operations_so_far",
                          "opt_param_scheduler", "optimizer", "rng_state"}
    (states,) = state["rng_state"]["(0, 0)"]
    assert set(states) == {"random_rng_state", "np_rng_state", "torch_rng_state", "cuda_rng_state", "rng_tracker_states"}
    assert set(states["rng_tracker_states"]) == {"data-parallel-rng", "model-parallel-rng", "expert-parallel-rng"}
    name = "module.module.module.output_layer.weight"
    assert state["optimizer"]["param_to_group_meta"][name]["weight_decay"] == 0.1
