#!/usr/bin/env python3
"""A training whose ranks are tasks of srun, in a Slurm of one node that the test starts.

    train_srun_test.py --bin DIR [TEST]...

What mpirun's processes do, those of `srun --mpi=pmix` do too. Exits with 77 where there is no Slurm (Debian: slurmd, slurmctld,
slurm-client, munge), where it does not start, and where it does not know PMIx.
"""
import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import unittest

import train_processes_test as processes
from private_slurm import PrivateSlurm, knows_pmix, missing_programs

SKIPPED = 77
SRUN = ("srun", "--quiet", "-n", str(processes.RANKS))

# Of the tests of mpirun's processes.
AS_PROCESSES = [f"processes.Mpi.{name}" for name in (
    "test_processes_end_with_the_bits_of_threads", "test_a_signal_that_the_launcher_hands_on_ends_all",
    "test_one_process_tells_of_an_error_that_all_have", "test_help_is_printed_once")]


class Srun(processes.Training):
    def test_tasks_that_cannot_find_each_other_are_refused(self):
        process = self.start("--config", "run.yaml", "--set", "train_iters=3", launcher=(*SRUN, "--mpi=none"))
        out, err = process.communicate(timeout=100)
        self.assertEqual((process.returncode, out), (3, ""), err)
        self.assertEqual(err.count("the tasks that srun started have no way to find each other"), 1, err)

    def test_one_task_has_threads_for_ranks(self):
        options = ("--config", "run.yaml", "--set", "train_iters=3", "--print-state-digest")
        task, _ = self.finish(self.start(*options, "--ranks", "2", launcher=("srun", "--quiet", "-n", "1", "--mpi=none")))
        threads, _ = self.threads(*options)
        self.assertEqual(self.digest(task), self.digest(threads))

    def test_a_job_that_is_cancelled_is_saved(self):
        process = self.start("--config", "run.yaml", "--save", "out", "--set", "train_iters=1000000", launcher=processes.LAUNCHER)
        self.read_steps(process, 3)
        running = subprocess.run(["squeue", "--noheader", "--states=RUNNING", "--format=%i"], check=True, capture_output=True, text=True)
        subprocess.run(["scancel", running.stdout.strip()], check=True)
        _, err = self.finish(process)
        self.assertIn("as a signal asked: saved in out", err)
        self.assertGreaterEqual(self.steps_saved(), 3)

    def test_a_killed_task_ends_all(self):
        tell_pid = ("bash", "-c", f'echo $$ > pid.{processes.RANK} && exec "$0" "$@"')
        process = self.start("--config", "run.yaml", "--set", "train_iters=1000000", launcher=(*processes.LAUNCHER, *tell_pid))
        self.read_steps(process, 3)
        os.kill(int((self.folder / "pid.1").read_text()), signal.SIGKILL)
        _, err = process.communicate(timeout=100)
        # Of the tasks' codes the largest: the other one gets SIGTERM, SIGKILL or both.
        self.assertGreaterEqual(process.returncode, 128 + signal.SIGKILL, err)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("tests", nargs="*", metavar="TEST", help="classes, or tests of them [all]")
    args = parser.parse_args()
    if missing := missing_programs():
        print(f"SKIPPED: no {', '.join(missing)}")
        sys.exit(SKIPPED)
    processes.BIN, processes.LAUNCHER = args.bin.resolve(), (*SRUN, "--mpi=pmix")
    # srun does not tell Open MPI that there are fewer cores than ranks.
    os.environ["OMPI_MCA_mpi_yield_when_idle"] = "1"
    for name in [name for name in os.environ if name.startswith(("SLURM_", "PMI", "OMPI_COMM_"))]:  # of a job in which this test runs
        del os.environ[name]
    with contextlib.ExitStack() as stack:
        try:
            slurm = stack.enter_context(PrivateSlurm())
        except TimeoutError as error:  # a machine on which Slurm itself does not start
            print(f"SKIPPED: {error}")
            sys.exit(SKIPPED)
        os.environ |= slurm.environment
        if not knows_pmix():
            print("SKIPPED: srun has no plugin pmix")
            sys.exit(SKIPPED)
        unittest.main(argv=[*sys.argv[:1], *(args.tests or ["Srun", *AS_PROCESSES])])
