#!/usr/bin/env python3
"""A synchronous save of a whole training state by ckpt-train against dcp.save of as many bytes, in turn, both durable.

    bench_save.py --bin build/release/bin [--hidden-size 512] [--ranks 2] [--saves 3] [--runs 3] [--work DIR]

Run with a Python that has torch. `ours`: what the log says that each save took, its digests and its manifest included. `dcp.save`: as many float32 values in tensors of 3 MB from one process, fsync included, with one thread (torch's default) and
with one per core. The ceiling: `dd` of as many bytes, fsync. Prints one JSON document; `ratio` is the time of the faster dcp.save over ours.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import measure

VOCABULARY = 16384
PEER = """
import sys, time
import torch
import torch.distributed.checkpoint as dcp
folder, size, threads, saves = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
state = {f"layer.{i}": torch.randn(1536, 512) for i in range(max(1, size // (1536 * 512 * 4)))}
for save in range(saves):
    started = time.perf_counter()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{folder}/{save}", thread_count=threads), no_dist=True)
    print(time.perf_counter() - started)
"""


def write_tokens(folder):
    """A file of random tokens, for runs whose steps nobody looks at."""
    draw, path = random.Random(1), folder / "tokens.jsonl"
    path.write_text("".join(json.dumps({"input_ids": [draw.randrange(VOCABULARY) for _ in range(260)]}) + "\n" for _ in range(50)))
    return path


def settings_of(hidden_size, tokens):
    """Of a run whose state is large beside its steps; it saves every one of them."""
    return {"num_layers": 8, "hidden_size": hidden_size, "ffn_hidden_size": 3 * hidden_size, "num_attention_heads": 8,
            "vocab_size": VOCABULARY, "seq_length": 16, "lr": 1e-4, "save_interval": 1, "keep_checkpoints": 1, "data_path": tokens}


def train(args, tokens, save):
    """The seconds of each save."""
    settings = settings_of(args.hidden_size, tokens) | {"train_iters": args.saves, "global_batch_size": args.ranks, "async_save": "false",
                                                        "save_proof": "false"}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [args.bin / "ckpt-train", "train", "--ranks", args.ranks, "--save", save, *words]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return [float(seconds) for seconds in re.findall(r"saved iteration \d+ in ([\d.]+) s", done.stdout)]


def dcp_save(folder, size, threads, saves):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PEER, folder, str(size), str(threads), str(saves)], check=True,
                          stdout=subprocess.PIPE, text=True)
    return [float(line) for line in done.stdout.splitlines()]


def write(folder, size):
    folder.mkdir()
    return [measure.write(folder / "zeros", size).seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--saves", type=int, default=3, help="by each process")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        tokens = write_tokens(scratch)
        train(args, tokens, scratch / "warm")
        size = measure.size_below(scratch / "warm")
        shutil.rmtree(scratch / "warm")
        sides = {
            "ours": lambda folder: train(args, tokens, folder),
            "dcp.save": lambda folder: dcp_save(folder, size, 1, args.saves),
            "dcp.save, threads": lambda folder: dcp_save(folder, size, os.cpu_count(), args.saves),
            "write": lambda folder: write(folder, size),
        }
        seconds = {name: [] for name in sides}
        for i in range(args.runs):
            for name, side in sides.items():
                folder = scratch / f"{name}-{i}"
                os.sync()
                seconds[name] += side(folder)
                shutil.rmtree(folder)
    median = {name: measure.median(some) for name, some in seconds.items()}
    peer = min(median["dcp.save"], median["dcp.save, threads"])
    print(json.dumps({"bytes": size, "ranks": args.ranks, "seconds": seconds,
                      "gb_per_second": {name: size / some / 1e9 for name, some in median.items()},
                      "ratio": peer / median["ours"], "load_average": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
