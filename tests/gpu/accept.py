#!/usr/bin/env python3
"""What one GPU must show: right numbers, the same bits twice, no error of memory.

    python3 tests/gpu/accept.py --bin build/cuda/bin [--only PART]... [--slice I/N] [--limit SECONDS] [--list]

Parts, in this order:

* conformance: every operation, GPU against CPU, at real and odd sizes (test_trainer_ops_cuda), collectives and meshes of ranks that share
  the GPU (test_trainer_device_cuda, test_trainer_step_cuda)
* models: every model of tests/golden/hf against Transformers in float32 and against the CPU in bfloat16 (tests/gpu/check_models)
* deterministic: d1 and m1 with deterministic_mode, twice: every loss has the same bits
* recompute: d1 and m1 with deterministic_mode, keeping everything for backward, and recomputing activations or whole layers: every loss has
  the same bits
* memcheck, racecheck, initcheck: the operations under compute-sanitizer, which COMPUTE_SANITIZER names if it is not on the path. initcheck
  looks at kernels of this project alone. racecheck looks at all, and what it reports of kernels of cuBLAS, cuDNN and CUTLASS does not count: it
  does not know how their copies are waited for

Each piece of a part is timed and has --limit seconds [480]; --slice takes every Nth piece from the Ith on, so that the slices of a part fit into
calls of a few minutes. --list names the pieces and runs none. A piece that was skipped has failed: this needs a GPU. Exits with 1 if a piece
failed. The last line is "N passed, N failed".
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SANITIZERS = {
    "memcheck": ["--leak-check", "no"],
    "racecheck": ["--print-limit", "1000"],
    "initcheck": ["--kernel-name", "kns=ckpt"],
}
SANITIZER_ERROR = 9  # its exit code
STEPS = ["--warmup", "4", "--steps", "24"]
# Runs whose losses have the same bits, of a dense model and of one with experts.
MODELS = ["d1", "m1"]
SAME_BITS = {
    "deterministic": [[], []],
    "recompute": [["--set", f"recompute_granularity={what}"] for what in ("none", "selective", "full")],
}


def tests_of(program):
    """Names of a GoogleTest program's tests for one GPU, of which those with a parameter are one piece."""
    listed = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    tests, suite = [], None
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith("."):
            suite = name
        elif name.startswith("  ") and suite:
            test = f"{suite}{name.strip().split('/')[0]}{'/*' if '/' in name else ''}"
            if "ManyGpus" not in test and test not in tests:
                tests.append(test)
    return tests


def are_of_libraries(report):
    """Whether racecheck reports nothing but races inside kernels of libraries."""
    kernels = re.findall(r"(?:Race reported between|and) (?:Read|Write) access at (.+?)\+0x", report)
    others = [kernel for kernel in kernels if "cutlass::" not in kernel and not re.match(r"nvjet_|cudnn|cublas", kernel)]
    return bool(kernels) and not others and "Internal Sanitizer Error" not in report


def run_test(program, test, before, limit):
    done = subprocess.run([*before, program, f"--gtest_filter={test}"], capture_output=True, text=True, timeout=limit)
    text = done.stdout + done.stderr
    if done.returncode != 0 and not (done.returncode == SANITIZER_ERROR and are_of_libraries(text)):
        return f"exit {done.returncode}\n{text[-4000:]}"
    if not re.search(r"\[  PASSED  \] [1-9]", text) or "[  SKIPPED ]" in text:
        return f"nothing ran\n{text[-1000:]}"
    return None


def run_models(bin_dir, limit):
    done = subprocess.run([HERE / "check_models", bin_dir], capture_output=True, text=True, timeout=limit)
    print(done.stdout, end="")
    return None if done.returncode == 0 else f"exit {done.returncode}\n{done.stderr[-4000:]}"


def run_same(bin_dir, model, runs, limit):
    """Whether the losses of runs with these options are the same to the last bit."""
    losses = []
    for options in runs:
        command = [bin_dir / "ckpt-train", "bench", "--device", "cuda", "--model", model, "--json", "--set", "deterministic_mode=true", *STEPS,
                   *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        if done.returncode != 0:
            return f"exit {done.returncode}\n{done.stderr[-4000:]}"
        losses.append(json.loads(done.stdout)["losses"])
    for step, of_runs in enumerate(zip(*losses, strict=True), 1):
        if len(set(of_runs)) > 1:
            return f"losses of step {step} differ: {of_runs}"
    return None


def pieces_of(part, bin_dir, limit):
    """[(name, function that returns what failed, or None)]."""
    def gtests(program, before=()):
        path = bin_dir / program
        return [(f"{program} {test}", lambda test=test: run_test(path, test, list(before), limit)) for test in tests_of(path)]

    if part == "conformance":
        return [piece for program in ("test_trainer_ops_cuda", "test_trainer_device_cuda", "test_trainer_step_cuda") for piece in gtests(program)]
    if part == "models":
        return [("check_models", lambda: run_models(bin_dir, limit))]
    if part in SAME_BITS:
        return [(model, lambda model=model: run_same(bin_dir, model, SAME_BITS[part], limit)) for model in MODELS]
    sanitizer = os.environ.get("COMPUTE_SANITIZER", "compute-sanitizer")
    return gtests("test_trainer_ops_cuda", [sanitizer, "--tool", part, "--error-exitcode", str(SANITIZER_ERROR), *SANITIZERS[part]])


def main():
    parts = ["conformance", "models", *SAME_BITS, *SANITIZERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", choices=parts)
    parser.add_argument("--slice", default="1/1", metavar="I/N")
    parser.add_argument("--limit", type=float, default=480)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    index, count = map(int, args.slice.split("/"))
    if not 1 <= index <= count:
        parser.error(f"--slice takes I/N with 1 <= I <= N, found {args.slice}")
    passed = failed = 0
    for part in args.only or parts:
        for name, run in pieces_of(part, args.bin.resolve(), args.limit)[index - 1 :: count]:
            if args.list:
                print(part, name)
                continue
            start = time.time()
            try:
                failure = run()
            except subprocess.TimeoutExpired:
                failure = f"did not end in {args.limit:.0f} s"
            except OSError as error:  # the program is not there
                failure = str(error)
            passed += failure is None
            failed += failure is not None
            print(f"{part}  {name}  {'ok' if failure is None else 'FAILED: ' + failure}  {time.time() - start:.1f} s", flush=True)
    if not args.list:
        print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
