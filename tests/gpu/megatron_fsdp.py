#!/usr/bin/env python3
"""Real Megatron-FSDP loads what GPU ranks saved, saves it again, and GPU ranks go on from that.

    PYTHONPATH=SITE python3 tests/gpu/megatron_fsdp.py --bin build/cuda/bin [--only NAME]... [--device cuda] [--work DIR]

Models of tests/golden/hf are trained for five steps by `ckpt-train --ranks 2` on two GPUs and saved as fsdp_dtensor. Each mesh of two ranks of real
Megatron-LM (../megatron, under torchrun) loads that strictly, saves at once, and trains four more steps. A line a case and mesh; exits with 1 where

* a key that Megatron asks for is missing, or a size, the schedule or the iteration is another one
* a tensor of weights, optimizer or random states is not in Megatron's save with the same bits (`ckpt-inspect diff`)
* a loss of Megatron's four steps is not within 2e-3 of that of `next_losses`, which goes on from our save on the CPU
* the GPU ranks go on from Megatron's save with losses that are not within 2e-3 of Megatron's; or, of a model without experts, that have not the bits
  (deterministic_mode) of those from our save. For routers with renormalised weights Megatron's arguments say softmax over the chosen, the same
  in other roundings

With --device cpu neither side needs a GPU: real Megatron-FSDP runs over gloo (../interop/peers/megatron_fsdp.py), as tests/interop does it.

Needs two GPUs; in --bin ckpt-train, ckpt-inspect and next_losses; and in SITE the wheels megatron-core==0.19.0 and einops for Python 3.12, unpacked, with
torch 2.11 beside them. Transformer Engine is not used (../megatron/megatron_stand_ins.py).
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/megatron"))

import make_cases  # noqa: E402, in the folder above
import megatron_loads  # noqa: E402

RANKS = 2
# One of Megatron's ranks.
PROGRAMS = {"cuda": ROOT / "tests/megatron/megatron_rank.py", "cpu": ROOT / "tests/interop/peers/megatron_fsdp.py"}
CASES = {
    "dense": ("llama-tied-fp32", []),
    "dense_optim_grads": ("llama-tied-fp32", ["data_parallel_sharding_strategy=optim_grads"]),
    "experts": ("qwen3moe-norm-bf16", []),
    "experts_divided": ("qwen3moe-norm-bf16", ["expert_model_parallel_size=2"]),
}
# How the GPU ranks go on, whatever the save says of the ranks that wrote it.
GOES_ON = """
  num_distributed_optimizer_instances=1 expert_model_parallel_size=1 data_parallel_sharding_strategy=optim_grads_params micro_batch_size=4
  deterministic_mode=true shuffle=false packing=false
""".split()


class Failed(Exception):
    pass


def run(*command, good=(0,)):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode not in good:
        raise Failed(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return done.stdout


def go_on(args, job, load, knows_its_data):
    """Losses of the GPU ranks on the job's sequences, from a checkpoint.

    Each sequence is an example, learned from the second token on. What we saved knows its data, of which these are none: they start at their first
    example. What Megatron saved has counted samples alone: these are the data behind them.
    """
    examples, metrics = args.work / "examples.jsonl", args.work / "metrics.jsonl"
    sequences = [tokens for step in job.steps for tokens in step["tokens"]]
    before = [] if knows_its_data else sequences[:1] * (job.iteration * len(job.steps[0]["tokens"]))
    examples.write_text("".join(json.dumps({"input_ids": tokens, "loss_mask": [1] * len(tokens)}) + "\n" for tokens in before + sequences))
    metrics.unlink(missing_ok=True)
    settings = [*GOES_ON, f"data_path={examples}", f"restart_data={json.dumps(knows_its_data)}", f"exit_interval={job.iteration + len(job.steps)}"]
    run(args.bin / "ckpt-train", "train", "--load", load, "--device", args.device, "--ranks", RANKS, "--metrics", metrics, "--quiet",
        *(argument for setting in settings for argument in ("--set", setting)))
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines() if "loss" in line]


def far(losses, others):
    if len(losses) != len(others):
        raise Failed(f"{len(losses)} steps of {len(others)}")
    return max(megatron_loads.relative(loss, other) for loss, other in zip(losses, others))


def has_experts(args, job):
    return "fsdp2_ep2" in json.loads((args.work / job.name / "case.json").read_text())["meshes"]


def judge(args, job, saved, of_our_save):
    """What a job showed, as text."""
    result = job.run(args.limit)
    if wrong := megatron_loads.verdict(job, result):
        raise Failed(f"{wrong}; its log is {job.log}")
    diff = json.loads(run(args.bin / "ckpt-inspect", "diff", "--json", args.work / job.name / "ckpt", saved, good=(0, 1)))
    if not diff["equal"] or diff["tensors"] == 0:
        raise Failed(f"another state: {diff['different'] + diff['only_a'] + diff['only_b']}")
    theirs = [step["loss"] for step in result["steps"]]
    losses = go_on(args, job, saved, knows_its_data=False)
    if losses != of_our_save and not has_experts(args, job):
        raise Failed(f"our ranks go on from Megatron's save with {losses}, from ours with {of_our_save}")
    apart = far(losses, theirs)
    if apart > megatron_loads.LOSS_TOLERANCE:
        raise Failed(f"our ranks go on with {losses}, Megatron with {theirs}")
    return (f"{diff['tensors']} tensors, {diff['elements']} numbers have the same bits; losses differ by {megatron_loads.worst(job, result, 'loss'):.1e} "
            f"from ours on the CPU, by {apart:.1e} from those of the ranks that went on")


def try_case(args, name, port):
    """How many meshes failed."""
    repository, settings = CASES[name]
    maker = make_cases.Maker(args.work, args.bin)
    maker.from_training(name, make_cases.golden_root(ROOT) / "hf" / repository / "ckpt", settings, ranks=RANKS, device=args.device)
    meshes = [mesh for mesh in json.loads((args.work / name / "case.json").read_text())["meshes"] if megatron_loads.MESHES[mesh][0] == RANKS]
    failed, of_our_save = 0, None
    for number, mesh in enumerate(meshes):
        start, saved = time.time(), args.work / f"{name}.{mesh}.save"
        job = megatron_loads.Job(args.work / name, mesh, port + number, args.work, RANKS, saved, PROGRAMS[args.device])
        try:
            of_our_save = of_our_save or go_on(args, job, args.work / name / "ckpt", knows_its_data=True)
            text = "ok: " + judge(args, job, saved, of_our_save)
        except Failed as failure:
            failed += 1
            text = f"FAILED: {failure}"
        print(f"{name} {mesh}  {text}  {time.time() - start:.1f} s", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--device", choices=PROGRAMS, default="cuda")
    parser.add_argument("--limit", type=float, default=120, help="seconds of one job of Megatron's")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "megatron_fsdp")
    args = parser.parse_args()
    if args.device == "cuda" and (reason := megatron_loads.missing()):
        sys.exit(f"cannot run: {reason}")
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    failed = sum(try_case(args, name, 10 * number) for number, name in enumerate(args.only or CASES))
    print(f"{failed} failed" if failed else "all equal")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
