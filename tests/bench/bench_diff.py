#!/usr/bin/env python3
"""`ckpt-inspect diff` on two checkpoints beside torch on the same two.

    bench_diff.py --bin build/release/bin [--gb 4] [--runs 5] [--work DIR]

Run with a Python that has torch and safetensors. Two Hugging Face repositories of the Qwen3-MoE shape, of half the size each: of the
same values in two copies, and of other values. The peer maps the files by safetensors' load_file and compares tensor by tensor:
torch.equal, and if that is false the number of elements that differ, the largest difference and the first place. It is timed
alone, without imports; ours is the whole process. A third case has no peer: one of them as fsdp_dtensor, under other names. Sides run
in turn, page cache warm; the ceiling beside them is reading the bytes. Prints one JSON document.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import make_model
import measure

PEER = """
import pathlib, sys, time
import torch
from safetensors.torch import load_file
def load(folder):
    return {key: tensor for path in sorted(pathlib.Path(folder).glob("*.safetensors")) for key, tensor in load_file(path).items()}
started = time.perf_counter()
a, b = load(sys.argv[1]), load(sys.argv[2])
assert a.keys() == b.keys()
different = 0
for key, x in a.items():
    y = b[key]
    if torch.equal(x, y):
        continue
    different += 1
    unequal = x != y
    found = (int(unequal.sum()), float((x.float() - y.float()).abs().max()), unequal.flatten().to(torch.uint8).argmax().item())
print(time.perf_counter() - started, different)
"""


def peer(a, b, equal):
    command = [sys.executable, "-W", "ignore", "-c", PEER, a, b]
    seconds, different = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    if (int(different) == 0) != equal:
        raise RuntimeError(f"torch finds {different} tensors different")
    return measure.Run(float(seconds), 0.0, 0)


def ours(tool, a, b, equal, out):
    script = '"$@"; test $? = ' + ("0" if equal else "1")
    with open(out, "wb") as file:
        run = measure.run(["sh", "-c", script, "sh", tool, "diff", a, b, "--json"], stdout=file)
    if json.loads(pathlib.Path(out).read_text())["equal"] != equal:
        raise RuntimeError("ckpt-inspect answers wrong")
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=4.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path, help="where the files go (default: the temporary directory)")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        one = args.gb * 1e9 / 2
        for name, seed in (("a", 1), ("same", 1), ("other", 2)):
            model = make_model.make(scratch / name, one, max(one / 4, 1e7), seed)
        subprocess.run([args.bin / "ckpt-convert", "hf-to-fsdp", scratch / "a", scratch / "fsdp", "--no-verify", "--quiet"], check=True)
        tool = args.bin / "ckpt-inspect"
        result = {"runs": args.runs, "bytes": 2 * model["bytes"], "tensors": model["tensors"], "cases": {}}
        for case, other, equal in (("equal", "same", True), ("different", "other", False), ("names", "fsdp", True)):
            sides = {"ours": lambda: ours(tool, scratch / "a", scratch / other, equal, scratch / "answer.json"),
                     "read": lambda: measure.run(["cat", *sorted(measure.files_below(scratch / "a") + measure.files_below(scratch / other))])}
            if case != "names":
                sides["torch"] = lambda: peer(scratch / "a", scratch / other, equal)
            seconds, peak = {side: [] for side in sides}, 0
            for i in range(args.runs + 1):  # the first round warms up and is not counted
                for side, measured in sides.items():
                    run = measured()
                    if i > 0:
                        seconds[side].append(run.seconds)
                    if side == "ours":
                        peak = max(peak, run.peak_rss_bytes)
                    print(f"{case} {side}: {result['bytes'] / run.seconds / 1e9:.2f} GB/s", file=sys.stderr)
            median = {side: measure.median(some) for side, some in seconds.items()}
            result["cases"][case] = {
                "seconds": seconds, "gb_per_second": {side: result["bytes"] / some / 1e9 for side, some in median.items()},
                "peak_rss_bytes": peak, "ratio": round(median["torch"] / median["ours"], 2) if "torch" in median else None,
            }
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
