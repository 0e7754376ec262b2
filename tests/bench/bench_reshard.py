#!/usr/bin/env python3
"""A run's state loaded under another layout: saved by two ranks, loaded by eight, beside dcp.load of the same checkpoint.

    bench_reshard.py --bin build/release/bin [--hidden-size 512] [--ranks 8] [--runs 3] [--no-torch] [--work DIR]

Run with a Python that has torch, or without `dcp.load`. `ours`: a whole process of `ckpt-train` that loads weights and optimizer into the shards of
`--ranks` ranks and has nothing else to do; `ours, processes`: the same with MPI, all processes and their launcher together; `dcp.load`: the call alone, in as many processes, each tensor split along its first dimension. The files lie in the
page cache. Prints one JSON document: seconds, and `read`, the bytes that all ranks read over those of the checkpoint.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import measure
from bench_save import settings_of, write_tokens

HERE = pathlib.Path(__file__).resolve().parent


def run_counted(command):
    """(seconds, bytes read by its calls) of a process, which must succeed."""
    started = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its counts last until it is waited for
    seconds = time.perf_counter() - started
    with open(f"/proc/{process.pid}/io") as file:
        read = int(dict(line.split(": ") for line in file)["rchar"])
    if process.wait() != 0:
        raise RuntimeError(f"exit {process.returncode}: {' '.join(map(str, command))}")
    return seconds, read


def main():
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--ranks", type=int, default=8, help="that load")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-torch", action="store_true", help="leave out dcp.load")
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        settings = settings_of(args.hidden_size, write_tokens(scratch)) | {"train_iters": 1, "global_batch_size": args.ranks}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        train = [args.bin / "ckpt-train", "train", *words, "--quiet"]
        measure.run([*train, "--ranks", 2, "--save", scratch / "run"])
        checkpoint = next(scratch.rglob(".metadata")).parent
        size = measure.size_below(checkpoint)

        def ours(_):
            return run_counted([*train, "--ranks", args.ranks, "--load", scratch / "run"])

        def processes(_):
            return run_counted(["mpirun", "-n", args.ranks, *train, "--threads", 1, "--load", scratch / "run"])

        def dcp_load(i):
            command = [sys.executable, "-W", "ignore", HERE / "reshard_peer.py", checkpoint, args.ranks, scratch / f"meeting-{i}"]
            done = json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout)
            return done["seconds"], done["bytes"]

        def read(_):
            return measure.run(["cat", *measure.files_below(checkpoint)]).seconds, size

        sides = {"ours": ours, "ours, processes": processes, "dcp.load": dcp_load, "read": read}
        if args.no_torch:
            del sides["dcp.load"]
        taken = {name: [] for name in sides}
        for i in range(args.runs + 1):  # the first round warms up and is not counted
            for name, side in sides.items():
                result = side(i)
                if i > 0:
                    taken[name].append(result)
    seconds = {name: [run[0] for run in runs] for name, runs in taken.items()}
    print(json.dumps({"bytes": size, "ranks": args.ranks, "seconds": seconds,
                      "read": {name: measure.median(run[1] for run in runs) / size for name, runs in taken.items()},
                      "ratio": None if args.no_torch else measure.median(seconds["dcp.load"]) / measure.median(seconds["ours"]),
                      "load_average": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
