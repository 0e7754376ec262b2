#!/usr/bin/env python3
"""Compressing a model's weights by `ckpt-convert --compress zstd:3`, beside the `zstd` command on the same shards.

    bench_compress.py --bin build/release/bin [--gb 1] [--runs 5] [--work DIR]

Run with a Python that has torch. Both sides use every core, write their files and end with fsync. Without the proof: the command makes none. Ceilings: the command
without a result (compression alone), and `dd` of as many bytes as it writes. Prints one JSON document; `ratio` is the median over the rounds of the command's time over ours.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import make_model
import measure


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        make_model.make(scratch / "hf", args.gb * 1e9, max(args.gb / 4, 0.01) * 1e9)
        shards = sorted((scratch / "hf").glob("*.safetensors"))
        raw = sum(shard.stat().st_size for shard in shards)

        def ours(out):
            return measure.run([args.bin / "ckpt-convert", "hf-to-fsdp", scratch / "hf", out, "--compress", "zstd:3", "--no-verify", "--quiet"])

        def command(out):
            out.mkdir()
            return measure.run(["sh", "-c", 'out=$1; shift; zstd -q -3 -T0 --output-dir-flat "$out" "$@" && sync "$out"/*', "sh", out, *shards])

        def compression(out):
            out.mkdir()
            return measure.run(["sh", "-c", 'zstd -q -3 -T0 -c "$@" >/dev/null', "sh", *shards])

        def write(out):
            out.mkdir()
            return measure.write(out / "zeros", size["zstd"])

        sides = {"zstd": command, "ours": ours, "compression": compression, "write": write}
        runs = {name: [] for name in sides}
        size = {}
        for i in range(args.runs + 1):  # the first round warms up and is not counted
            order = list(sides)[i % 2:] + list(sides)[:i % 2]
            for name in order:
                out = scratch / "out"
                taken = sides[name](out)
                size[name] = measure.size_below(out)
                shutil.rmtree(out)
                os.sync()
                if i > 0:
                    runs[name].append(taken)
    seconds = {name: [run.seconds for run in some] for name, some in runs.items()}
    version = subprocess.run(["zstd", "-qV"], check=True, capture_output=True, text=True).stdout.strip()
    print(json.dumps({"bytes": raw, "compressed": size, "version": version,
                      "seconds": seconds, "cpu_seconds": {name: measure.median(run.cpu_seconds for run in some) for name, some in runs.items()},
                      "ratio": measure.median(peer / own for own, peer in zip(seconds["ours"], seconds["zstd"])),
                      "load_average": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
