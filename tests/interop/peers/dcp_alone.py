"""Saves without collectives on two gloo ranks, each with a metadata file of its own: `dcp_alone.py FOLDER`.

FOLDER/equal, FOLDER/differing    tensors and objects; in the second some that are not the same on both ranks
FOLDER/run                        a model and its AdamW, of which the second rank has two tensors of its own
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy
import torch
import torch.distributed
import torch.distributed.checkpoint
import torch.multiprocessing
import transformers
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from ranks import leave_together

RANKS = 2


def state(mesh, number):
    """What a rank has, where it is the rank's own with this number in it."""
    whole = torch.arange(30.0).reshape(5, 6)
    generator = numpy.random.RandomState(number)
    return {"shard": distribute_tensor(whole, mesh, [Shard(0)]), "replica": distribute_tensor(whole, mesh, [Replicate()]),
            "same": torch.ones(4), "own": torch.ones(3) * number, "nest": {"x": [torch.ones(2, dtype=torch.int16) * number, "same"]},
            "step": 7, "position": number, "random": generator.get_state()}


def run(folder, number):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.arange(16).reshape(2, 8)
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    weights["model.norm.weight"] += number
    moments["state"]["lm_head.weight"]["exp_avg"] += number
    if number == 0:
        config.save_pretrained(folder / "assets")
    return {"model": weights, "optim": moments}


def on_rank(rank, folder, store):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    for name, saved in (("equal", state(mesh, 0)), ("differing", state(mesh, rank)), ("run", run(folder, rank))):
        torch.distributed.checkpoint.save(saved, checkpoint_id=str(folder / name), use_collectives=False)
    leave_together(RANKS)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        arguments = (pathlib.Path(sys.argv[1]), pathlib.Path(scratch, "store"))
        torch.multiprocessing.start_processes(on_rank, arguments, nprocs=RANKS, start_method="fork")
    print(json.dumps({}))


if __name__ == "__main__":
    main()
