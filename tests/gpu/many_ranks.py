#!/usr/bin/env python3
"""Trains one state on GPU ranks of every mesh, and on the CPU, each from the other's checkpoint.

    python3 tests/gpu/many_ranks.py --bin build/cuda/bin [--device cuda] [--mpi] [--nccl-threads] [--precision NAME] [--mesh NAME]... [--work DIR]

A small Qwen3-MoE of Hugging Face files is trained on four ranks (HSDP, experts over two of them) and saved; then every mesh goes on
from there, with the state proved to be the one that was saved, and back from the CPU. Ranks are threads of one process; they share
a GPU where there are fewer. With --mpi they go on by NCCL, too, as processes, and with --nccl-threads as threads where each has a GPU. --mesh names those to try, else all. Exits with 1 where a figure
is not as it must be:

* in float32 the losses of every mesh are those of one rank within 2e-6: twelve steps in which sums were added in other orders
* ranks that are processes, or threads with NCCL, have the losses of ranks that are threads, bit for bit (deterministic_mode)
* in bfloat16, with gradients sent in bfloat16, within 2e-3: roundings of 2**-9 to weights and gradients
"""

import argparse
import functools
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parents[1] / "golden/hf/qwen3moe-norm-bf16/ckpt"
SAVED_AT, END = 6, 12

HSDP = ["num_distributed_optimizer_instances=2"]
HFSDP = HSDP + ["outer_dp_sharding_strategy=optim"]
EP2 = ["expert_model_parallel_size=2"]
MESHES = {
    "1 rank": (1, []),
    "2 no_shard": (2, ["data_parallel_sharding_strategy=no_shard"]),
    "2 optim": (2, ["data_parallel_sharding_strategy=optim"]),
    "2 optim_grads": (2, ["data_parallel_sharding_strategy=optim_grads"]),
    "2 FSDP": (2, []),
    "2 FSDP, EP 2": (2, EP2),
    # In bfloat16, two ranks keep terms of a sum of one micro-batch; with optim_grads their updates write both ranks' weights.
    "2 FSDP, one micro-batch": (2, ["micro_batch_size=8"]),
    "2 optim_grads, one micro-batch": (2, ["data_parallel_sharding_strategy=optim_grads", "micro_batch_size=8"]),
    "4 optim, EP 2": (4, EP2 + ["data_parallel_sharding_strategy=optim"]),
    "4 FSDP, overlapped": (4, ["overlap_grad_reduce=true", "overlap_param_gather=true", "prefetch_depth=2", "weight_slots=3"]),
    "4 FSDP, EP 2 by all-gather": (4, EP2 + ["moe_token_dispatcher_type=allgather"]),
    "4 HSDP, EP 2, overlapped": (4, HSDP + EP2 + ["overlap_grad_reduce=true", "overlap_param_gather=true"]),
    "4 HFSDP, EP 2": (4, HFSDP + EP2),
    "8 FSDP": (8, []),
    "8 HFSDP, EP 2, overlapped": (8, HFSDP + EP2 + ["overlap_grad_reduce=true", "overlap_param_gather=true"]),
}
# Settings, and the bound of a loss.
PRECISIONS = {"float32": ([], 2e-6), "bfloat16": (["bf16=true", "grad_comm_dtype=bf16"], 2e-3)}


def write_data(path):
    draw = random.Random(0)
    with path.open("w") as file:
        for _ in range(200):
            file.write(json.dumps({"input_ids": [draw.randrange(3, 160) for _ in range(65)]}) + "\n")


@functools.cache
def count_gpus():
    if not shutil.which("nvidia-smi"):
        return 1
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True)
    return max(1, len(listed.stdout.splitlines()))


class Trainer:
    def __init__(self, args, precision):
        self.args, self.precision, self.runs = args, precision, 0

    def losses(self, device, ranks, settings, steps, load=None, save=None, processes=False):
        self.runs += 1
        metrics = self.args.work / f"metrics{self.runs}.jsonl"
        metrics.unlink(missing_ok=True)
        source = ["--load", load, "--prove"] if load else ["--init", f"hf:{MODEL}"]
        # NCCL takes two ranks for one GPU only where they say that they are on different hosts. Rank r has GPU r modulo the number of GPUs.
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, "bash", "-c",
                  f'NCCL_HOSTID=host$((OMPI_COMM_WORLD_RANK / {count_gpus()})) exec "$@"', "ckpt-train"] if processes else []
        command = [*launch, self.args.bin / "ckpt-train", *source, "--device", device, "--ranks", ranks, "--metrics", metrics, "--quiet"]
        if save:
            command += ["--save", save]
        for setting in [f"data_path={self.args.data}", "seq_length=64", "global_batch_size=16", "lr=1e-3", f"train_iters={steps}",
                        "deterministic_mode=true", *self.precision, *settings]:
            command += ["--set", setting]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}", flush=True)
            return None
        return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]


def try_precision(args, name, precision, bound):
    trainer = Trainer(args, precision)
    failures = 0

    def check(what, got, want, bound=bound):
        nonlocal failures
        far = max((abs(a - b) / abs(b) for a, b in zip(got or [], want)), default=None)
        good = got is not None and len(got) == len(want) and far <= bound
        failures += not good
        print(f"{name}  {what:50} {'ok' if good else 'FAILED'}  largest difference of a loss {far}", flush=True)

    saved = {device: args.work / f"{name}-{device}" for device in {args.device, "cpu"}}
    ranks, settings = MESHES["4 HSDP, EP 2, overlapped"]
    first = trainer.losses(args.device, ranks, settings, SAVED_AT, save=saved[args.device])
    if first is None:
        return 1
    check("one rank from the start", trainer.losses(args.device, 1, [], SAVED_AT), first)
    if args.device != "cpu":
        check("2 CPU ranks from the start", trainer.losses("cpu", 2, EP2, SAVED_AT, save=saved["cpu"]), first)
    want = trainer.losses(args.device, 1, [], END, load=saved[args.device])
    if want is None:
        return 1
    for mesh in args.mesh or MESHES:
        ranks, settings = MESHES[mesh]
        got = trainer.losses(args.device, ranks, settings, END, load=saved[args.device])
        check(f"goes on: {mesh}", got, want)
        if args.mpi and ranks > 1 and got:
            by_nccl = trainer.losses(args.device, ranks, settings, END, load=saved[args.device], processes=True)
            check(f"the same by processes: {mesh}", by_nccl, got, bound=0)
        if args.nccl_threads and 1 < ranks <= count_gpus() and got:
            by_nccl = trainer.losses(args.device, ranks, [*settings, "gpu_collectives=nccl"], END, load=saved[args.device])
            check(f"the same by NCCL's threads: {mesh}", by_nccl, got, bound=0)
    if args.device != "cpu":
        check("goes on: 2 CPU ranks", trainer.losses("cpu", 2, [], END, load=saved[args.device]), want)
        ranks, settings = MESHES["4 HFSDP, EP 2"]
        check("from the CPU's checkpoint: 4 HFSDP, EP 2", trainer.losses(args.device, ranks, settings, END, load=saved["cpu"]), want)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=PRECISIONS, action="append")
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--nccl-threads", action="store_true")
    parser.add_argument("--mesh", choices=MESHES, action="append")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "many_ranks")
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    args.data = args.work / "data.jsonl"
    write_data(args.data)
    sys.exit(sum(try_precision(args, name, *PRECISIONS[name]) for name in args.precision or PRECISIONS) > 0)


if __name__ == "__main__":
    main()
