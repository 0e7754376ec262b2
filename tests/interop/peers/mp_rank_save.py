"""Saves a model as real Megatron's ranks do by themselves (`--ckpt-format torch`), each its part.

    mp_rank_save.py CORE FOLDER OUT TENSOR,PIPELINE,VIRTUAL,EXPERT --grouped|--sequential

Every rank builds its part of the GPTModel that `args` in FOLDER (torch_dist) describe, of local layers, loads FOLDER into it, and
stores what Megatron-LM's `generate_state_dict` stores, under the name of `get_checkpoint_name`, below OUT.
"""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import megatron_core  # noqa: F401  reads CORE and FOLDER from the command line
import megatron_ranks
import mp_rank_model
import torch

FOLDER, OUT = sys.argv[2], pathlib.Path(sys.argv[3])
SIZES = TENSOR, PIPELINE, VIRTUAL, EXPERT = tuple(map(int, sys.argv[4].split(",")))


def save():
    rank = megatron_ranks.Rank(FOLDER, SIZES, lambda args: None)
    state = rank.beginning(7, 0) | rank.weights()
    state |= {"opt_param_scheduler": {"max_lr": 0.001, "num_steps": 7}, "rng_state": megatron_ranks.random_states()}
    target = OUT / "iter_0000007" / mp_rank_model.directory()
    target.mkdir(parents=True)
    torch.save(state, target / "model_optim_rng.pt")


if __name__ == "__main__":
    megatron_ranks.run(TENSOR * PIPELINE * EXPERT, save)
    (OUT / "latest_checkpointed_iteration.txt").write_text("7")
    print(json.dumps({"files": sorted(str(path.relative_to(OUT)) for path in OUT.rglob("*.pt"))}))
    sys.stdout.flush()
    os._exit(0)
