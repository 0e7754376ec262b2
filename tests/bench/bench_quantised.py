#!/usr/bin/env python3
"""hf-to-fsdp of a repository in FP8 blocks and of the same model in bfloat16, in turn, each with its proof; decoding alone, on one thread.

    bench_quantised.py --bin build/release/bin [--gb 2] [--runs 5] [--work DIR] [--budget 64MiB]

Prints one JSON document. --gb is the size in bfloat16, which both conversions write. Rates are those of the bytes written.
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

ELEMENTS = 4 << 20


def decode(program, codec, runs):
    command = [program, codec, "bfloat16", f"--elements={ELEMENTS}", f"--runs={runs}"]
    result = json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout)
    out = ELEMENTS * 2
    return {"gb_per_second": round(out / min(result["cast"]) / 1e9, 2), "copy_gb_per_second": round(result["bytes"] / min(result["copy"]) / 1e9, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    parser.add_argument("--budget", default="64MiB", help="of one more run of each, for its peak memory")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        sources = {"bfloat16": scratch / "bf16", "fp8": scratch / "fp8"}
        for name, source in sources.items():
            model = make_model.make(source, args.gb * 1e9, max(args.gb / 4, 0.01) * 1e9, is_fp8=name == "fp8")
        written = measure.size_below(sources["bfloat16"])

        def convert(name, *options):
            target = scratch / "out"
            os.sync()
            result = measure.run([args.bin / "ckpt-convert", "hf-to-fsdp", sources[name], target, "--quiet", *options])
            shutil.rmtree(target)
            return result

        runs = {name: [] for name in sources}
        for i in range(args.runs + 1):  # the first round warms up and is not counted
            for name in sorted(sources, reverse=i % 2 == 0):
                result = convert(name)
                if i > 0:
                    runs[name].append(result)
                print(f"{name}: {written / result.seconds / 1e9:.2f} GB/s", file=sys.stderr)
        peaks = {name: convert(name, "--memory-budget", args.budget).peak_rss_bytes for name in sources}
        stored = {name: measure.size_below(source) for name, source in sources.items()}

    print(json.dumps({
        "model": model, "written_bytes": written, "stored_bytes": stored, "runs": args.runs, "budget": args.budget,
        "seconds": {name: [round(r.seconds, 3) for r in some] for name, some in runs.items()},
        "cpu_seconds": {name: round(measure.median([r.cpu_seconds for r in some]), 3) for name, some in runs.items()},
        "gb_per_second": {name: round(written / measure.median([r.seconds for r in some]) / 1e9, 3) for name, some in runs.items()},
        "peak_rss_bytes": peaks, "decode": {codec: decode(args.bin / "cast_speed", codec, 51) for codec in ("fp8_blocks", "mxfp4")},
    }, indent=1))


if __name__ == "__main__":
    main()
