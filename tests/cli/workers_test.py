#!/usr/bin/env python3
"""Processes that share a conversion, all at once, leave what one process would have written: workers_test.py --bin DIR."""
import argparse
import json
import pathlib
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
    "model.h5": ("fsdp_dtensor/dense_fsdp2/ckpt", ("--to", "hdf5", "--files", "3")),
}


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(program, name, scratch):
    source, options = CASES[name]
    command = [program, "convert", *options, GOLDENS / source]
    (scratch / "alone").mkdir()
    (scratch / "shared").mkdir()
    subprocess.run([*command, scratch / "alone" / name, "--quiet"], check=True)
    target = scratch / "shared" / name
    workers = [subprocess.Popen([*command, target, "--worker", f"{i}/{WORKERS}", "--json"], stdout=subprocess.PIPE)
               for i in range(WORKERS)]
    reports = [json.loads(worker.communicate()[0]) for worker in workers]
    assert all(report["ok"] for report in reports), reports
    assert not target.exists()
    last = json.loads(subprocess.run([*command, target, "--finalize", "--json"], check=True, capture_output=True).stdout)
    assert sum(report["worker"]["tensors"] for report in reports) == last["target"]["tensors"] == last["resumed_tensors"]
    assert [report["worker"]["number"] for report in reports] == list(range(WORKERS))
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
