#!/usr/bin/env python3
"""hf-to-fsdp, with its proof and without, against cp of the same bytes, in turn, all made durable; peak memory under a small budget.

    bench_convert.py --bin build/release/bin [--gb 8] [--runs 3] [--work DIR] [--budget 64MiB] [--cold] [--gpt-oss] [--other BIN]

Prints one JSON document. `ratio` is our throughput without the proof over that of cp, `proved_ratio` with it: medians over the
rounds of the ratios within each. `--cold` empties the page cache before every run (needs root), else the source was read once
before and lies in it as far as memory allows. The ceilings stand beside it: writing the same number of bytes, sequentially, with fsync,
through the page cache and past it, and reading them past it. `--gpt-oss`: a repository that stores experts transposed.
`--other`: the programs of another build, run as well, in turn with the rest.
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


def write_only(source, target, *flags):
    """A ceiling: as many bytes from memory."""
    target.mkdir()
    # /dev/zero costs a fill of the buffer; the file system still writes every block.
    return measure.write(target / "zeros", measure.size_below(source), *flags)


def read_only(source, target):
    """A ceiling: the bytes from the disk, whatever the page cache holds."""
    target.mkdir()
    script = 'for file; do dd if="$file" of=/dev/null bs=4M iflag=direct status=none || exit 1; done'
    return measure.run(["sh", "-c", script, "sh", *measure.files_below(source)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    parser.add_argument("--budget", default="64MiB")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--gpt-oss", action="store_true")
    parser.add_argument("--other", type=pathlib.Path)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        source = scratch / "hf"
        model = make_model.make(source, args.gb * 1e9, max(args.gb / 4, 0.01) * 1e9, is_gpt_oss=args.gpt_oss)
        size = measure.size_below(source)

        def convert(folder, target, *options):
            return measure.run([folder / "ckpt-convert", "hf-to-fsdp", "--memory-budget", args.budget, source, target, *options])

        sides = {
            "ours": lambda target: convert(args.bin, target, "--no-verify"),
            "cp": lambda target: copy(source, target),
            "proved": lambda target: convert(args.bin, target),
            "write": lambda target: write_only(source, target),
            "write_direct": lambda target: write_only(source, target, "oflag=direct"),
            "read_direct": lambda target: read_only(source, target),
        }
        if args.other:
            sides |= {"other": lambda target: convert(args.other, target, "--no-verify"), "other_proved": lambda target: convert(args.other, target)}
        runs = {name: [] for name in sides}
        if not args.cold:
            for path in measure.files_below(source):
                with open(path, "rb") as file:
                    while file.read(64 << 20):
                        pass
        for i in range(args.runs + 1):  # the first round warms up and is not counted
            # Each side comes first once: a run that follows one with files of its size in memory gets that memory, which costs less.
            first = i % len(sides)
            for name, side in [*sides.items()][first:] + [*sides.items()][:first]:
                target = scratch / f"{name}-{i}"
                drop_caches() if args.cold else os.sync()
                result = side(target)
                shutil.rmtree(target)
                if i > 0:
                    runs[name].append(result)
                print(f"{name}: {size / result.seconds / 1e9:.2f} GB/s", file=sys.stderr)

    seconds = {name: measure.median([r.seconds for r in some]) for name, some in runs.items()}
    peak = max(r.peak_rss_bytes for r in runs["ours"] + runs["proved"])

    def ratio(side):
        return round(measure.median([cp.seconds / ours.seconds for cp, ours in zip(runs["cp"], runs[side])]), 3)

    print(json.dumps({
        "model": model, "bytes": size, "runs": args.runs, "cache": "cold" if args.cold else "warm", "budget": args.budget,
        "seconds": {name: [round(r.seconds, 3) for r in some] for name, some in runs.items()},
        "cpu_seconds": {name: round(measure.median([r.cpu_seconds for r in some]), 3) for name, some in runs.items()},
        "gb_per_second": {name: round(size / s / 1e9, 3) for name, s in seconds.items()},
        "ratio": ratio("ours"), "proved_ratio": ratio("proved"), "peak_rss_bytes": peak, "load_average": os.getloadavg()[0],
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
