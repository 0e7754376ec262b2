"""Runs a Megatron-FSDP peer, and gives models with experts what Megatron-FSDP 0.6.1 asks for.

    torchrun --standalone --nproc-per-node 2 tests/gpu/megatron_fsdp_peer.py peer_megatron_fsdp.py --model m1 ...

Parameters below `.experts.` belong to a mesh of their own there, without which it ends with an AttributeError. Here experts are not divided, so
it is the mesh of the others. Everything else is the peer's.
"""

import pathlib
import runpy
import sys

del sys.path[0]  # of this folder, whose megatron_fsdp.py is another thing

import megatron_fsdp
import torch

fully_shard_model = megatron_fsdp.fully_shard_model


def with_mesh_of_experts(module, **options):
    if any(".experts." in name for name, _ in module.named_parameters()):
        mesh = torch.distributed.init_device_mesh("cuda", (torch.distributed.get_world_size(), 1), mesh_dim_names=("fsdp", "tp"))
        options |= {"device_mesh": mesh, "dp_shard_dim": "fsdp", "tp_dim": "tp", "expt_device_mesh": mesh}
    return fully_shard_model(module, **options)


megatron_fsdp.fully_shard_model = with_mesh_of_experts
sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
