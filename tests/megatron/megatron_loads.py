#!/usr/bin/env python3
"""Proves that real Megatron-FSDP loads what ckptkit writes, and computes next what ours does.

    tests/megatron/megatron_loads.py CASES [--only NAME ...] [--jobs N] [--share-gpus] [--report FILE.md] [--logs DIR]

CASES is what make_cases.py wrote. Every case is loaded by Megatron-LM under every mesh it names, each time as a torchrun job of
its own, and trained on the case's tokens. Fails unless the iteration is that of the checkpoint, every learning rate is ours
and every loss is within 2e-3 of ours. Needs Megatron-LM core_v0.19.0 on PYTHONPATH, and two or four GPUs; exit code 77
where there are none.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from megatron_flags import MESHES

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
LOSS_TOLERANCE = 2e-3
LR_TOLERANCE = 1e-12
FIRST_PORT = 29600


def missing():
    """Why nothing can be run here, or nothing."""
    try:
        import torch
    except ImportError:
        return "no torch"
    if torch.cuda.device_count() < 2:
        return f"{torch.cuda.device_count()} GPUs of at least 2"
    try:
        import megatron.core  # noqa: F401
        import megatron.training  # noqa: F401
    except ImportError as error:
        return f"no Megatron-LM on PYTHONPATH: {error}"
    return None


class Job:
    """One case under one mesh. With `save`, Megatron saves there what it loaded, before its first step."""

    def __init__(self, folder, mesh, number, logs, gpus, save=None, program=HERE / "megatron_rank.py"):
        self.name, self.mesh, self.program = folder.name, mesh, program
        self.ranks, mesh_flags = MESHES[mesh]
        case = json.loads((folder / "case.json").read_text())
        ours = case["ranks"][str(self.ranks)]
        self.iteration, self.steps = case["iteration"], ours["steps"]
        self.log = logs / f"{self.name}.{mesh}.log"
        self.job_path = logs / f"{self.name}.{mesh}.job.json"
        self.result_path = logs / f"{self.name}.{mesh}.result.json"
        self.port = FIRST_PORT + number
        flags = [*ours["flags"], *mesh_flags, "--load", str((folder / "ckpt").resolve())]
        if save:
            flags += ["--save", str(save.resolve()), "--save-interval", "1"]
        self.job_path.write_text(json.dumps({"flags": flags, "steps": self.steps, "gpus": gpus}))
        self.gpus = min(self.ranks, gpus)

    def run(self, timeout):
        """The result, or why there is none."""
        environment = dict(
            os.environ, CUDA_VISIBLE_DEVICES=",".join(map(str, range(self.gpus))), OMP_NUM_THREADS="2",
            TORCHDYNAMO_DISABLE="1", NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1",
            NO_VCS_VERSION="1")  # or Megatron reports the commit of the repository around it
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks), "--master-port",
                   str(self.port), str(self.program), str(self.job_path), str(self.result_path)]
        with open(self.log, "w") as log:
            try:
                code = subprocess.run(command, check=False, env=environment, stdout=log, stderr=log, timeout=timeout).returncode
            except subprocess.TimeoutExpired:
                return f"still running after {timeout} s"
        return json.loads(self.result_path.read_text()) if code == 0 else f"exit {code}: {last_error(self.log)}"


def last_error(log):
    lines = [line for line in log.read_text().splitlines() if "Error" in line and "ChildFailedError" not in line]
    return lines[-1].strip() if lines else f"see {log}"


def relative(theirs, ours):
    return abs(theirs - ours) / abs(ours) if ours else abs(theirs)


def worst(job, result, field):
    return max(relative(theirs[field], ours[field]) for theirs, ours in zip(result["steps"], job.steps))


def verdict(job, result):
    """What is wrong, or nothing."""
    if isinstance(result, str):
        return result
    if len(result["steps"]) != len(job.steps):
        return f"{len(result['steps'])} steps of {len(job.steps)}"
    if result["iteration"] != job.iteration:
        return f"loaded iteration {result['iteration']}, not {job.iteration}"
    if worst(job, result, "lr") > LR_TOLERANCE:
        return "another learning rate"
    if not worst(job, result, "loss") <= LOSS_TOLERANCE:
        return f"losses differ by more than {LOSS_TOLERANCE}"
    return None


def report(outcomes):
    """Markdown: a line a job, then the losses side by side."""
    lines = ["| case | mesh | iteration | worst loss | worst gradient norm | |", "|---|---|---|---|---|---|"]
    for job, result in outcomes:
        wrong = verdict(job, result)
        numbers = ["–", "–", "–"]
        if not isinstance(result, str):
            numbers = [str(result["iteration"]), *(f"{worst(job, result, field):.1e}" for field in ("loss", "grad_norm"))]
        lines.append(f"| {job.name} | {job.mesh} | {' | '.join(numbers)} | {'**' + wrong + '**' if wrong else 'equal'} |")
    lines += ["", "```", f"{'':35} {'step':>4} {'our loss':>10} {'Megatron':>10} {'differs':>8} {'our norm':>9} {'Megatron':>9}"]
    for job, result in outcomes:
        if isinstance(result, str):
            continue
        for ours, theirs in zip(job.steps, result["steps"]):
            lines.append(
                f"{job.name + ' ' + job.mesh:35} {theirs['step']:4} {ours['loss']:10.6f} {theirs['loss']:10.6f} "
                f"{relative(theirs['loss'], ours['loss']):8.1e} {ours['grad_norm']:9.5f} {theirs['grad_norm']:9.5f}")
    return "\n".join([*lines, "```"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="at a time, on the same GPUs")
    parser.add_argument("--share-gpus", action="store_true", help="meshes of more ranks than GPUs, too: several ranks on a GPU")
    parser.add_argument("--timeout", type=float, default=300, help="seconds of a job")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--logs", type=pathlib.Path)
    options = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return SKIPPED

    import torch

    logs = options.logs or pathlib.Path(tempfile.mkdtemp(prefix="megatron_loads."))
    logs.mkdir(parents=True, exist_ok=True)
    gpus = torch.cuda.device_count()
    jobs, left_out = [], 0
    for path in sorted(options.cases.glob("*/case.json")):
        if options.only and path.parent.name not in options.only:
            continue
        for mesh in json.loads(path.read_text())["meshes"]:
            if MESHES[mesh][0] > gpus and not options.share_gpus:
                left_out += 1
            else:
                jobs.append(Job(path.parent, mesh, len(jobs), logs, gpus))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda job: job.run(options.timeout), jobs))

    outcomes = list(zip(jobs, results))
    text = report(outcomes)
    failed = sum(verdict(job, result) is not None for job, result in outcomes)
    software = next((result["software"] for result in results if not isinstance(result, str)), {})
    sharing = sum(job.ranks > gpus for job in jobs)
    text += f"\n\n{len(jobs) - failed} passed, {failed} failed, {left_out} skipped for want of GPUs, {sharing} shared {gpus} GPUs. " + ", ".join(
        f"{name} {version}" for name, version in software.items())
    print(text)
    if options.report:
        options.report.write_text(text + "\n")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
