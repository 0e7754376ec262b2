#!/usr/bin/env python3
"""Reading checkpoints of ours with and without the comparison with their manifest, beside the peers' loads.

    bench_load.py --bin build/release/bin [--gb 8] [--runs 5] [--work DIR] [--cores 2] [--checkpoint fsdp_dtensor] [--cache warm]

Run with a Python that has torch and safetensors. Every tensor of an fsdp_dtensor checkpoint and of a Hugging Face repository is
read once, by processes in turn. Ours opens the checkpoint and reads it; like dcp.load, it is timed without what comes before, which
makes the tensors' memory. safetensors' load_file makes its own. `warm`: all of it lies in the page cache; `cold`: none of it does.
The ceilings beside them: `cat`, and `fio` past the page cache (nothing if it is not here) with as many readers as ours, 1 MiB each.
Prints one JSON document; `cost` is the verified read's time over that of the unverified one (medians).
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import make_model
import measure

CACHES = ("warm", "cold")
PEERS = {
    "fsdp_dtensor": ("dcp.load", """
import sys, time
import torch
import torch.distributed.checkpoint as dcp
reader = dcp.FileSystemReader(sys.argv[1])
state = {key: torch.zeros(entry.size, dtype=entry.properties.dtype)
         for key, entry in reader.read_metadata().state_dict_metadata.items() if hasattr(entry, "size")}
started = time.perf_counter()
dcp.load(state, storage_reader=reader, no_dist=True)
print(time.perf_counter() - started)
"""),
    "hf": ("load_file", """
import pathlib, sys, time
import torch
from safetensors.torch import load_file
started = time.perf_counter()
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    for tensor in load_file(path).values():
        tensor.clone()  # of pages that are mapped, as the others copy them
print(time.perf_counter() - started)
"""),
}


def forget(folder):
    """Nothing of it stays in the page cache."""
    for path in measure.files_below(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def load(command):
    """What a process says that it took."""
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    return measure.Run(float(done.stdout), 0.0, 0)


def fio(checkpoint, readers):
    """The largest file of a checkpoint, read past the page cache; in seconds for all of the checkpoint."""
    path = max(measure.files_below(checkpoint), key=lambda file: file.stat().st_size)
    part = path.stat().st_size // readers >> 20 << 20
    command = ["fio", "--name=read", f"--filename={path}", f"--size={part}", f"--offset_increment={part}", f"--numjobs={readers}",
               "--readonly", "--rw=read", "--bs=1m", "--ioengine=psync", "--direct=1", "--group_reporting", "--output-format=json"]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    rate = json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]
    return measure.Run(measure.size_below(checkpoint) / rate, 0.0, 0)


def compare(checkpoint, peer, bin_dir, runs, caches):
    """Every side warm, then every side cold."""
    name, program = peer
    readers = 2 * len(os.sched_getaffinity(0))  # as load_speed has
    size = measure.size_below(checkpoint)
    sides = {
        "verified": lambda: load([bin_dir / "load_speed", checkpoint]),
        "unverified": lambda: load([bin_dir / "load_speed", checkpoint, "--no-verify"]),
        name: lambda: load([sys.executable, "-W", "ignore", "-c", program, checkpoint]),
        "read": lambda: measure.run(["cat", *sorted(measure.files_below(checkpoint))]),
    }
    result = {"bytes": size, "peer": name}
    for cache in caches:
        if cache == "cold" and shutil.which("fio") and size > readers << 20:
            sides["fio"] = lambda: fio(checkpoint, readers)  # it drops the file from the page cache
        seconds = {side: [] for side in sides}
        for i in range(runs + 1):  # the first round warms up and is not counted
            for side, measured in sides.items():
                if cache == "cold":
                    forget(checkpoint)
                run = measured()
                if i > 0:
                    seconds[side].append(run.seconds)
                print(f"{cache} {side}: {size / run.seconds / 1e9:.2f} GB/s", file=sys.stderr)
        median = {side: measure.median(some) for side, some in seconds.items()}
        result[cache] = {
            "seconds": seconds,
            "gb_per_second": {side: size / some / 1e9 for side, some in median.items()},
            "cost": median["verified"] / median["unverified"],
        }
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    parser.add_argument("--cores", type=int, help="run on so many (default: all)")
    parser.add_argument("--checkpoint", choices=PEERS, action="append", help="these alone")
    parser.add_argument("--cache", choices=CACHES, action="append", help="these alone")
    args = parser.parse_args()
    if args.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.cores])  # the sides inherit it

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        make_model.make(scratch / "hf", args.gb * 1e9, max(args.gb / 4, 0.01) * 1e9)
        convert = [args.bin / "ckpt-convert"]
        options = ["--no-verify", "--quiet"]
        subprocess.run([*convert, "hf-to-fsdp", scratch / "hf", scratch / "fsdp", *options], check=True)
        shutil.rmtree(scratch / "hf")  # without a manifest
        subprocess.run([*convert, "fsdp-to-hf", scratch / "fsdp", scratch / "hf", *options], check=True)
        checkpoints = {"fsdp_dtensor": next((scratch / "fsdp").rglob(".metadata")).parent, "hf": scratch / "hf"}
        compared = {name: compare(checkpoints[name], PEERS[name], args.bin, args.runs, args.cache or CACHES) for name in args.checkpoint or PEERS}
        print(json.dumps({"runs": args.runs, "cores": len(os.sched_getaffinity(0))} | compared, indent=1))


if __name__ == "__main__":
    main()
