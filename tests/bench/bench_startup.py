#!/usr/bin/env python3
"""Process time of `ckpt-inspect summary` on a small checkpoint.

    bench_startup.py --bin build/release/bin CHECKPOINT [--runs 50]

`process_ms` is user plus system time, `wall_ms` the time until the process is gone. The floor beside it: /bin/true.
"""
import argparse
import json
import pathlib

import measure


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=50)
    args = parser.parse_args()
    ours, floor = [], []
    for _ in range(args.runs):
        ours.append(measure.run([args.bin / "ckpt-inspect", "summary", args.checkpoint]))
        floor.append(measure.run(["/bin/true"]))
    milliseconds = lambda runs, field: round(1000 * measure.median([getattr(r, field) for r in runs]), 3)
    print(json.dumps({
        "runs": args.runs, "process_ms": milliseconds(ours, "cpu_seconds"), "wall_ms": milliseconds(ours, "seconds"),
        "peak_rss_bytes": max(r.peak_rss_bytes for r in ours),
        "floor": {"process_ms": milliseconds(floor, "cpu_seconds"), "wall_ms": milliseconds(floor, "seconds")},
    }))


if __name__ == "__main__":
    main()
