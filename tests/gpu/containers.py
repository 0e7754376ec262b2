#!/usr/bin/env python3
"""A run saves its state in each container, and goes on from it and from its conversions to the others: it stays the same run.

    python3 tests/gpu/containers.py --bin build/cuda/bin [--device cuda|cpu] [--fp32] [--work DIR]

Two ranks train a dense model and one with experts for eight steps and save after the fourth. From there go on: the same two ranks,
the same ranks from each of the other containers and from files under each naming (`ckpt-convert convert`), two instances of one rank,
one rank. Each load checks the state's digest and the stored loss (`prove`). Needs two GPUs, or none with `--device cpu`. Exits with
1 where a figure is not as it must be:

* the same ranks have the losses and the final digest of the run that nobody ended, bit for bit
* under another mesh, the first loss is the same within 1e-6 (bf16: 1e-3)
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

CONTAINERS = ("fsdp_dtensor", "torch_dist", "fsdp2", "hdf5")
BUFFERS = "torch_dist in buffers"
# A file holds a run as each of these has it.
FILES, NAMINGS = {"hdf5": ".h5", "torch_save": ".pt"}, ("fsdp_dtensor", "torch_dist", "fsdp2")
MODEL = {"num_layers": 2, "hidden_size": 256, "ffn_hidden_size": 512, "num_attention_heads": 4, "vocab_size": 258}
BATCH = {"seq_length": 128, "global_batch_size": 8}
STEPS, SAVED = 8, 4


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Trained:
    """What a run of `ckpt-train` ended with."""

    def __init__(self, train, folder, *options):
        metrics = folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        said = run(*train, *options, "--metrics", metrics, "--print-state-digest", "--json")
        self.digest = json.loads(said.splitlines()[-1])["state_digest"]
        self.losses = {step["step"]: step["loss"] for step in map(json.loads, metrics.read_text().splitlines())}


def setting(name, value):
    return ["--set", f"{name}={value}"]


class Check:
    """Prints what was compared, and remembers whether all held."""

    def __init__(self):
        self.failed = False

    def __call__(self, holds, what):
        self.failed |= not holds
        print(f"{'ok    ' if holds else 'FAILED'} {what}", flush=True)


def check_container(check, args, folder, name, settings, mesh, container):
    """One model, saved in one container."""
    train = [args.bin / "ckpt-train", "train", "--device", args.device]
    folder = folder / name / container
    folder.mkdir(parents=True)
    saved = folder / "run"
    whole = Trained(train, folder, "--config", settings, "--ranks", 2, *mesh, "--save", saved, *setting("save_format", container),
                    *setting("save_interval", SAVED))
    shutil.rmtree(saved / f"iter_{STEPS:07}")  # a run goes on from the newest
    (saved / "latest_checkpointed_iteration.txt").write_text(f"{SAVED}\n")

    def goes_on(source, what):
        again = Trained(train, folder, "--load", source, "--ranks", 2, *mesh, "--prove")
        same = again.digest == whole.digest and all(again.losses[step] == whole.losses[step] for step in range(SAVED + 1, STEPS + 1))
        check(same, f"{name}, {container}: {what} have the bits of the run that nobody ended")

    goes_on(saved, "the same ranks")
    targets = {other: ["--to", other] for other in CONTAINERS if other != container}
    targets[BUFFERS] = ["--to", "torch_dist", "--optimizer-form", "dp_reshardable"]
    if not args.fp32:  # the exact weights are in the buffers, which are those of a model in bfloat16
        targets[BUFFERS] += ["--dtype", "bfloat16"]
    for file, suffix in FILES.items():
        targets |= {f"{file} as {naming}{suffix}": ["--to", file, "--naming", naming] for naming in NAMINGS}
    for target, options in targets.items():
        converted = folder / f"to {target}"
        run(args.bin / "ckpt-convert", "convert", saved, converted, *options, "--quiet")
        goes_on(converted, f"the same ranks from {target}")
    allowed = 1e-6 if args.fp32 else 1e-3
    for what, ranks, instances in (("two instances", 2, 2), ("one rank", 1, 1)):
        other = Trained(train, folder, "--load", saved, "--ranks", ranks, *setting("num_distributed_optimizer_instances", instances), "--prove")
        difference = abs(other.losses[SAVED + 1] - whole.losses[SAVED + 1])
        check(difference <= allowed, f"{name}, {container}: {what}, first loss {difference:.2g} away (allowed: {allowed:g})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--fp32", action="store_true", help="not bf16")
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    args = parser.parse_args()

    check = Check()
    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-containers-") as folder:
        folder = pathlib.Path(folder)
        data = folder / "data.jsonl"
        data.write_text('{"text": "one two three four five six seven eight nine ten one two three four "}\n' * 60)
        for name, more, mesh in (("dense", {}, []), ("experts", {"num_experts": 4}, setting("expert_model_parallel_size", 2))):
            settings = folder / f"{name}.yaml"  # JSON is YAML
            settings.write_text(json.dumps({"model": MODEL | more, "batch": BATCH, "data_path": str(data), "train_iters": STEPS, "lr": 1e-3,
                                            "bf16": not args.fp32}))
            for container in CONTAINERS:
                check_container(check, args, folder, name, settings, mesh, container)
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
