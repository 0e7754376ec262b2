"""Saves a model as Megatron-Core's older backend does: a zarr array for each tensor.

    zarr_save.py CORE FOLDER OUT TENSOR,EXPERT --sequential --zarr ZARR

Every one of TENSOR x EXPERT ranks builds its part of the GPTModel that `args` in FOLDER (torch_dist) describe and loads FOLDER into it;
all save to OUT by dist_checkpointing's strategy "zarr".
CORE, ZARR: where Megatron-Core's packages lie, and zarr's. Prints {"arrays": …}.
"""
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import megatron_core as peer  # reads CORE and FOLDER from the command line
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.mapping import ShardedObject

from ranks import leave_together

FOLDER, OUT = sys.argv[2], pathlib.Path(sys.argv[3])
TENSOR, EXPERT = map(int, sys.argv[4].split(","))
RANKS = TENSOR * EXPERT  # experts are divided over the data-parallel ranks


def on_rank(rank, store):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS))
    peer.no_gpu.install()
    torch.cuda.synchronize = lambda *a: None
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    parallel_state.initialize_model_parallel(TENSOR, expert_model_parallel_size=EXPERT)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    common = dist_checkpointing.load_common_state_dict(FOLDER)
    args = common["args"]
    args.tensor_model_parallel_size = TENSOR
    model = peer.build(args)
    content = dict(common["content_metadata"], dp_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True))

    def state_dict():
        return {"model": model.sharded_state_dict(**peer.only(model.sharded_state_dict, metadata=content))}

    loaded = dist_checkpointing.load(state_dict(), FOLDER, validate_access_integrity=False)
    missing, unexpected = model.load_state_dict(loaded["model"], strict=False)
    assert not missing and all(key.endswith("_extra_state") for key in unexpected), (missing, unexpected)
    state = {key: value for key, value in common.items() if key != "content_metadata"} | state_dict()
    state["rng_state"] = ShardedObject("rng_state", [{"torch_rng_state": torch.get_rng_state()}], (1, TENSOR),
                                       (0, parallel_state.get_tensor_model_parallel_rank()), replica_id=parallel_state.get_data_parallel_rank())
    if rank == 0:
        OUT.mkdir(parents=True)
    dist.barrier()
    dist_checkpointing.save(state, str(OUT), sharded_strategy=("zarr", 1))
    leave_together(RANKS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        torch.multiprocessing.start_processes(on_rank, (os.path.join(scratch, "store"),), nprocs=RANKS, start_method="fork")
    print(json.dumps({"arrays": sorted(path.parent.name for path in OUT.glob("*/.zarray"))}))
    sys.stdout.flush()
    os._exit(0)
