#!/usr/bin/env python3
"""Casts between every two of float16, bfloat16, float32 and float64, beside torch's on one thread.

    bench_cast.py --bin build/release/bin [--elements 1000000] [--rounds 10] [--runs 31] [--only float64]

Run with a Python that has torch. Both sides cast the same number of elements from memory into memory that is there already; the
ceiling beside them is a copy of as many bytes as the cast reads and writes. The sides take turns round by round, and the fastest run
of each counts: whatever else the machine does makes a run slower, and none faster. Prints one JSON document.
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import time

import torch

import measure

TYPES = ["float16", "bfloat16", "float32", "float64"]


def ours(program, source, target, elements, runs):
    command = [program, source, target, f"--elements={elements}", f"--runs={runs}"]
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout)


def torchs(source, target, elements, runs):
    tensor = torch.randn(elements).to(getattr(torch, source))
    out = torch.empty(elements, dtype=getattr(torch, target))
    seconds = []
    for run in range(runs + 1):  # the first one touches the pages
        started = time.perf_counter()
        out.copy_(tensor)
        if run > 0:
            seconds.append(time.perf_counter() - started)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=31, help="of each side in a round")
    parser.add_argument("--only", default="", help="pairs whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(1)
    pairs = {}
    for source, target in itertools.permutations(TYPES, 2):
        name = f"{source} to {target}"
        if args.only not in name:
            continue
        seconds = {"ours": [], "torch": [], "copy": []}
        for _ in range(args.rounds):
            mine = ours(args.bin / "cast_speed", source, target, args.elements, args.runs)
            seconds["ours"] += mine["cast"]
            seconds["copy"] += mine["copy"]
            seconds["torch"] += torchs(source, target, args.elements, args.runs)
        best = {side: min(some) for side, some in seconds.items()}
        pairs[name] = {"bytes": mine["bytes"], "seconds": seconds, "ratio": best["torch"] / best["ours"],
                       "gb_per_second": {side: mine["bytes"] / some / 1e9 for side, some in best.items()}}
        print(f"{name}: {pairs[name]['ratio']:.2f} {pairs[name]['gb_per_second']}", file=sys.stderr)
    print(json.dumps({"elements": args.elements, "rounds": args.rounds, "runs": args.runs, "torch": torch.__version__, "pairs": pairs}, indent=1))


if __name__ == "__main__":
    main()
