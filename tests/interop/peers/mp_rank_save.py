"""Saves a model as real Megatron's ranks do by themselves (`--ckpt-format torch`), each its part.

    mp_rank_save.py CORE FOLDER OUT TENSOR,PIPELINE,VIRTUAL,EXPERT --sequential

Every rank builds its part of the GPTModel that `args` in FOLDER (torch_dist) describe, of local layers, loads FOLDER into it, and
stores what Megatron-LM's `generate_state_dict` stores, under the name of `get_checkpoint_name`, below OUT.
"""
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import megatron_core as peer  # reads CORE and FOLDER from the command line
import mp_rank_model
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel

from ranks import leave_together

FOLDER, OUT = sys.argv[2], pathlib.Path(sys.argv[3])
TENSOR, PIPELINE, VIRTUAL, EXPERT = map(int, sys.argv[4].split(","))
RANKS = TENSOR * PIPELINE * EXPERT


def on_rank(rank, store):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS))
    peer.no_gpu.install()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    parallel_state.initialize_model_parallel(
        TENSOR, PIPELINE, VIRTUAL if VIRTUAL > 1 else None, expert_model_parallel_size=EXPERT)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    common = dist_checkpointing.load_common_state_dict(FOLDER)
    args = common["args"]
    args.tensor_model_parallel_size, args.pipeline_model_parallel_size = TENSOR, PIPELINE
    args.expert_model_parallel_size = EXPERT
    args.virtual_pipeline_model_parallel_size = VIRTUAL if VIRTUAL > 1 else None
    parts = [mp_rank_model.build(args, stage, VIRTUAL) for stage in range(VIRTUAL)]
    names = ["model"] if VIRTUAL == 1 else [f"model{i}" for i in range(VIRTUAL)]
    metadata = dict(common["content_metadata"], dp_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    wanted = {name: part.sharded_state_dict(**peer.only(part.sharded_state_dict, metadata=metadata))
              for name, part in zip(names, parts)}
    loaded = dist_checkpointing.load(wanted, FOLDER, validate_access_integrity=False)
    for name, part in zip(names, parts):
        missing, unexpected = part.load_state_dict(loaded[name], strict=False)
        assert not missing and all(key.endswith("_extra_state") for key in unexpected), (missing, unexpected)
    state = {"args": args, "checkpoint_version": 3.0, "iteration": 7, "num_floating_point_operations_so_far": 0}
    for name, part in zip(names, parts):
        state[name] = part.state_dict_for_save_checkpoint()
    state["opt_param_scheduler"] = {"max_lr": 0.001, "num_steps": 7}
    state["rng_state"] = [{"torch_rng_state": torch.get_rng_state(), "rng_tracker_states": {"model-parallel-rng": torch.cuda.get_rng_state()}}]
    target = OUT / "iter_0000007" / mp_rank_model.directory()
    target.mkdir(parents=True)
    torch.save(state, target / "model_optim_rng.pt")
    leave_together(RANKS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        torch.multiprocessing.spawn(on_rank, (os.path.join(scratch, "store"),), nprocs=RANKS)
    (OUT / "latest_checkpointed_iteration.txt").write_text("7")
    print(json.dumps({"files": sorted(str(path.relative_to(OUT)) for path in OUT.rglob("*.pt"))}))
    sys.stdout.flush()
    os._exit(0)
