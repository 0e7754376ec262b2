#!/usr/bin/env python3
"""`ckpt-inspect diff` on two checkpoints beside torch on the same two.

    bench_diff.py --bin build/release/bin [--gb 4] [--runs 5] [--work DIR]

Run with a Python that has torch and safetensors. Checkpoints of half the size each: two Hugging Face repositories of the Qwen3-MoE shape with the
same values, two with others, and one model under two namings: a repository as fsdp_dtensor and as torch_dist, DCP under the names of Transformers (fsdp2) as
fsdp_dtensor, and a repository of gpt-oss, which stores experts transposed, as torch_dist. The peer maps the files of a repository by safetensors' load_file and
compares tensor by tensor: torch.equal, and if that is false the number of elements that differ, the largest difference and the first place. Under two namings
it is diff_names_peer.py. It is timed alone, without imports; ours is the whole process. Sides run in turn, page cache warm; the ceiling beside them is
reading the bytes. Prints one JSON document.
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

CASES = {"equal": ("a", "same"), "different": ("a", "other"), "names": ("a", "fsdp"), "torch_dist": ("a", "torch_dist"), "dcp": ("fsdp2", "fsdp"),
         "transposed": ("oss", "oss_torch_dist")}


def peer(a, b, equal, has_names):
    script = [pathlib.Path(__file__).parent / "diff_names_peer.py"] if has_names else ["-c", PEER]
    command = [sys.executable, "-W", "ignore", *script, a, b]
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
        scratch, models = pathlib.Path(scratch), {}
        one = args.gb * 1e9 / 2
        for name, seed in (("a", 1), ("same", 1), ("other", 2), ("oss", 3)):
            models[name] = make_model.make(scratch / name, one, max(one / 4, 1e7), seed, is_gpt_oss=name == "oss")
        for verb, source, target in (("hf-to-fsdp", "a", "fsdp"), ("hf-to-torch-dist", "a", "torch_dist"), ("hf-to-torch-dist", "oss", "oss_torch_dist"),
                                     ("convert --to=fsdp2", "fsdp", "fsdp2")):
            subprocess.run([args.bin / "ckpt-convert", *verb.split(), scratch / source, scratch / target, "--no-verify", "--quiet"], check=True)
        tool = args.bin / "ckpt-inspect"
        result = {"runs": args.runs, "bytes": 2 * models["a"]["bytes"], "tensors": models["a"]["tensors"], "cases": {}}
        for case, (a, b) in CASES.items():
            size = 2 * models["oss" if a == "oss" else "a"]["bytes"]
            equal, has_names = case != "different", case not in ("equal", "different")
            sides = {"ours": lambda: ours(tool, scratch / a, scratch / b, equal, scratch / "answer.json"),
                     "read": lambda: measure.run(["cat", *sorted(measure.files_below(scratch / a) + measure.files_below(scratch / b))]),
                     "torch": lambda: peer(scratch / a, scratch / b, equal, has_names)}
            seconds, peak = {side: [] for side in sides}, 0
            for i in range(args.runs + 1):  # the first round warms up and is not counted
                for side, measured in sides.items():
                    run = measured()
                    if i > 0:
                        seconds[side].append(run.seconds)
                    if side == "ours":
                        peak = max(peak, run.peak_rss_bytes)
                    print(f"{case} {side}: {size / run.seconds / 1e9:.2f} GB/s", file=sys.stderr)
            median = {side: measure.median(some) for side, some in seconds.items()}
            result["cases"][case] = {
                "seconds": seconds, "gb_per_second": {side: size / some / 1e9 for side, some in median.items()},
                "peak_rss_bytes": peak, "ratio": round(median["torch"] / median["ours"], 2),
            }
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
