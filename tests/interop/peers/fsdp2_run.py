"""Runs of Transformers under real FSDP2, AdamW and a LambdaLR on gloo ranks: what they save, and how they go on.

    fsdp2_run.py RANKS JOBS   JOBS is a JSON list of [verb, MODEL, CHECKPOINT, FORM, AT], one run each, FORM nested or flattened:
      start   two updates from MODEL's weights, then a save in CHECKPOINT
      alike   the same with one group, in which all decay much
      apart   the same with a group of the embedding, which has a rate of its own
      sgd     the same as start with SGD without momentum; heavy_sgd: with momentum
      load    dcp.load of CHECKPOINT and set_state_dict into a run of MODEL's configuration that has another state; load_sgd and
              load_heavy_sgd: of SGD

Prints a JSON list of answers: loss (of batch AT), next_loss (of the one behind, after an update on it), state: key -> shape, dtype,
sha256 of what get_state_dict returns, objects: key -> value.
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import hashing
from ranks import leave_together
from token_stream import token_stream

torch.set_num_threads(1)
LR, STEPS, LENGTH = 1e-3, 2, 16


def batch(step, vocabulary):
    """Two sequences of a stream of tokens, the same on every rank; the last token of one is the first of the next."""
    stream = token_stream(vocabulary)
    return torch.stack([stream[at : at + LENGTH + 1] for at in (2 * step * LENGTH, (2 * step + 1) * LENGTH)])


class Run:
    """Model, optimizer and schedule of one rank."""

    def __init__(self, model, mesh, verb):
        self.model, self.vocabulary = model, model.config.vocab_size
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        decays = [p for p in model.parameters() if p.ndim >= 2]
        others = [p for p in model.parameters() if p.ndim < 2]
        groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        if verb == "alike":
            groups = [{"params": decays + others, "weight_decay": 5.0}]
        if verb == "apart":
            groups[0]["params"] = decays[1:]
            groups.append({"params": decays[:1], "weight_decay": 0.1, "lr": LR / 4})
        if verb.endswith("sgd"):
            self.optimizer = torch.optim.SGD(groups, lr=LR, momentum=0.9 if "heavy" in verb else 0.0)
        else:
            self.optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
        if verb.endswith("steps"):
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.5)
        else:
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda epoch: 1 - 0.1 * epoch)

    def loss(self, step):
        tokens = batch(step, self.vocabulary)
        logits = self.model(input_ids=tokens[:, :-1], use_cache=False).logits.float()
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))

    def update(self, step):
        loss = self.loss(step)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        return loss.item()

    def state(self, form):
        options = StateDictOptions(flatten_optimizer_state_dict=form == "flattened")
        model, optim = get_state_dict(self.model, self.optimizer, options=options)
        return {"model": model, "optim": optim, "lr_scheduler": self.scheduler.state_dict()}

    def take(self, state, form):
        options = StateDictOptions(flatten_optimizer_state_dict=form == "flattened")
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"], options=options)
        self.scheduler.load_state_dict(state["lr_scheduler"])


def described(state):
    flat, _ = dcp._nested_dict.flatten_state_dict(state)
    tensors, objects = {}, {}
    for key, value in flat.items():
        if torch.is_tensor(value):
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            tensors[key] = hashing.describe(whole)
        else:
            objects[key] = value
    return {"state": tensors, "objects": objects}


def build(folder, with_weights):
    if with_weights:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    else:
        torch.manual_seed(99)
        config = transformers.AutoConfig.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.train()


def run_job(mesh, verb, folder, checkpoint, form, at):
    begins = not verb.startswith("load")
    run = Run(build(folder, begins), mesh, verb)
    if begins:
        for step in range(STEPS):
            run.update(step)
        dcp.save(run.state(form), checkpoint_id=checkpoint)
    else:
        run.update(50)  # so that there is a state to replace
        state = run.state(form)
        dcp.load(state, checkpoint_id=checkpoint)
        run.take(state, form)
    told = described(run.state(form))
    told["loss"] = run.update(at)
    told["next_loss"] = run.loss(at + 1).item()
    return told


def rank_main(rank, ranks, store, jobs, answers):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    told = [run_job(mesh, *job) for job in jobs]
    if rank == 0:
        with open(answers, "w", encoding="utf-8") as out:
            json.dump(told, out)
    leave_together(ranks)


def main():
    ranks, jobs = int(sys.argv[1]), json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        store, answers = os.path.join(scratch, "store"), os.path.join(scratch, "answers.json")
        torch.multiprocessing.start_processes(rank_main, (ranks, store, jobs, answers), nprocs=ranks, start_method="fork")
        with open(answers, encoding="utf-8") as told:
            print(json.dumps(json.load(told)))


if __name__ == "__main__":
    main()
