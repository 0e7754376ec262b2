#!/usr/bin/env python3
"""Processes that share a conversion, all at once, leave what one process would have written: workers_test.py --bin DIR."""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "golden"
WORKERS = 4
# Target -> source and options.
CASES = {
    "fsdp": ("hf/qwen3moe-norm-bf16/ckpt", ("--to", "fsdp_dtensor", "--parity", "2")),
    "core": ("hf/qwen3moe-norm-bf16/ckpt", ("--to", "torch_dist", "--dtype", "float32", "--files", "3")),
    "compressed": ("hf/qwen3moe-norm-bf16/ckpt", ("--to", "fsdp_dtensor", "--compress", "zstd", "--files", "6")),
    "model.pt": ("hf/qwen3-tied-bf16/ckpt", ("--to", "torch_save")),
    # Of each parameter the number of updates, which follows from the run, and no worker writes.
    "fsdp2": ("fsdp_dtensor/dense_fsdp2/ckpt", ("--to", "dcp", "--naming", "fsdp2")),
    "model.h5": ("fsdp_dtensor/dense_fsdp2/ckpt", ("--to", "hdf5", "--files", "3")),
}


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def share(said, as_json):
    """(number, tensors, of how many) of a worker."""
    if not as_json:
        words = re.match(r"worker (\d+) of \d+ wrote (\d+) of (\d+) tensors, ", said)
        assert words, said
        return tuple(map(int, words.groups()))
    report = json.loads(said)
    assert report["ok"], report
    return tuple(report["worker"][key] for key in ("number", "tensors", "of_tensors"))


def check(program, name, scratch):
    source, options = CASES[name]
    command = [program, "convert", *options, GOLDENS / source]
    (scratch / "alone").mkdir()
    (scratch / "shared").mkdir()
    subprocess.run([*command, scratch / "alone" / name, "--quiet"], check=True)
    target = scratch / "shared" / name
    says = [["--json"] if i % 2 else [] for i in range(WORKERS)]
    workers = [subprocess.Popen([*command, target, "--worker", f"{i}/{WORKERS}", *says[i]], stdout=subprocess.PIPE, text=True)
               for i in range(WORKERS)]
    shares = [share(worker.communicate()[0], bool(says[i])) for i, worker in enumerate(workers)]
    assert not target.exists()
    last = json.loads(subprocess.run([*command, target, "--finalize", "--json"], check=True, capture_output=True).stdout)
    numbers, counts, totals = zip(*shares)
    assert numbers == tuple(range(WORKERS))
    assert set(totals) == {sum(counts)} == {last["resumed_tensors"]}, shares
    assert last["target"]["tensors"] >= sum(counts)
    assert last["bytes_read"] < last["source"]["bytes"], "what workers wrote was written again"
    shared, alone = tree(scratch / "shared"), tree(scratch / "alone")
    assert shared.keys() == alone.keys(), (shared.keys(), alone.keys())
    assert not [file for file in alone if alone[file] != shared[file]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    program = parser.parse_args().bin.resolve() / "ckpt-convert"
    for name in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            check(program, name, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
