#!/usr/bin/env python3
"""hf-to-fsdp against cp of the same bytes, in turn, both made durable; peak memory under a small budget.

    bench_convert.py --bin build/release/bin [--gb 8] [--runs 3] [--work DIR] [--budget 64MiB] [--cold]

Prints one JSON document. `ratio` is our throughput over that of cp (medians); `--cold` empties the page cache before
every run (needs root), else the source was read once before and lies in it as far as memory allows. The ceiling stands
beside it: writing the same number of bytes, sequentially, with fsync.
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

BUDGET_SLACK_BYTES = 64 << 20


def drop_caches():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def copy(source, target):
    """cp, then fsync of every file and of the directory: what makes it as durable as ours."""
    script = 'cp -r "$1" "$2" && find "$2" -print0 | xargs -0 sync'
    return measure.run(["sh", "-c", script, "sh", source, target])


def write_only(source, target):
    """The ceiling: as many bytes from memory."""
    target.mkdir()
    size = measure.size_below(source)
    megabytes = max(1, size >> 20)
    # /dev/zero costs a fill of the buffer; the file system still writes every block.
    return measure.run(["dd", "if=/dev/zero", f"of={target / 'zeros'}", "bs=1M", f"count={megabytes}", "conv=fsync", "status=none"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    parser.add_argument("--budget", default="64MiB")
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        source = scratch / "hf"
        model = make_model.make(source, args.gb * 1e9, max(args.gb / 4, 0.01) * 1e9)
        size = measure.size_below(source)
        options = ["--no-verify", "--memory-budget", args.budget]
        sides = {
            "ours": lambda target: measure.run([args.bin / "ckpt-convert", "hf-to-fsdp", source, target, *options]),
            "cp": lambda target: copy(source, target),
            "write": lambda target: write_only(source, target),
        }
        runs = {name: [] for name in sides}
        if not args.cold:
            for path in measure.files_below(source):
                with open(path, "rb") as file:
                    while file.read(64 << 20):
                        pass
        for i in range(args.runs + 1):  # the first round warms up and is not counted
            for name, side in sides.items():
                target = scratch / f"{name}-{i}"
                drop_caches() if args.cold else os.sync()
                result = side(target)
                shutil.rmtree(target)
                if i > 0:
                    runs[name].append(result)
                print(f"{name}: {size / result.seconds / 1e9:.2f} GB/s", file=sys.stderr)

    seconds = {name: measure.median([r.seconds for r in some]) for name, some in runs.items()}
    peak = max(r.peak_rss_bytes for r in runs["ours"])
    print(json.dumps({
        "model": model, "bytes": size, "runs": args.runs, "cache": "cold" if args.cold else "warm", "budget": args.budget,
        "seconds": {name: [round(r.seconds, 3) for r in some] for name, some in runs.items()},
        "cpu_seconds": {name: round(measure.median([r.cpu_seconds for r in some]), 3) for name, some in runs.items()},
        "gb_per_second": {name: round(size / s / 1e9, 3) for name, s in seconds.items()},
        "ratio": round(seconds["cp"] / seconds["ours"], 3), "peak_rss_bytes": peak,
        "peak_rss_limit_bytes": BUDGET_SLACK_BYTES + parse_size(args.budget),
    }))


def parse_size(text):
    units = {"KiB": 10, "MiB": 20, "GiB": 30}
    for unit, shift in units.items():
        if text.endswith(unit):
            return int(float(text[:-len(unit)]) * (1 << shift))
    return int(text)


if __name__ == "__main__":
    main()
