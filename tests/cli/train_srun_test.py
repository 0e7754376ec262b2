#!/usr/bin/env python3
"""A training whose ranks are tasks of srun, in a Slurm of one node that the test starts. Exits 77 where Slurm is not installed.

    train_srun_test.py --bin DIR [TEST]...

What mpirun's processes do, those of `srun --mpi=pmix` do too; tasks that cannot find each other are refused.
"""
import argparse
import os
import pathlib
import signal
import sys
import unittest

import train_processes_test as processes
from private_slurm import PrivateSlurm, missing_programs

SKIPPED = 77
SRUN = ("srun", "--quiet", "-n", str(processes.RANKS))

# Of the tests of mpirun's processes.
AS_PROCESSES = [f"processes.Mpi.{name}" for name in (
    "test_processes_end_with_the_bits_of_threads", "test_a_signal_that_the_launcher_hands_on_ends_all",
    "test_one_process_tells_of_an_error_that_all_have", "test_help_is_printed_once")]


class Srun(processes.Training):
    def test_tasks_that_cannot_find_each_other_are_refused(self):
        for options, code, says in (((), 3, "the tasks that srun started have no way to find each other"),
                                    (("--set", "lr=-1"), 2, "setting lr is not a valid number")):
            with self.subTest(says):
                process = self.start("--config", "run.yaml", "--set", "train_iters=3", *options, launcher=(*SRUN, "--mpi=none"))
                out, err = process.communicate(timeout=100)
                self.assertEqual(process.returncode, code, err)
                self.assertEqual(err.count(says), 1, err)
                self.assertEqual(out, "")

    def test_one_task_has_threads_for_ranks(self):
        options = ("--config", "run.yaml", "--set", "train_iters=3", "--print-state-digest")
        task, _ = self.finish(self.start(*options, "--ranks", "2", launcher=("srun", "--quiet", "-n", "1", "--mpi=none")))
        threads, _ = self.threads(*options)
        self.assertEqual(self.digest(task), self.digest(threads))

    def test_a_killed_task_ends_all(self):
        tell_pid = ("bash", "-c", f'echo $$ > pid.{processes.RANK} && exec "$0" "$@"')
        process = self.start("--config", "run.yaml", "--set", "train_iters=1000000", launcher=(*processes.LAUNCHER, *tell_pid))
        self.read_steps(process, 3)
        os.kill(int((self.folder / "pid.1").read_text()), signal.SIGKILL)
        process.communicate(timeout=100)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL)


class Alone(processes.Training):
    def test_processes_that_mpi_does_not_bring_together_are_refused(self):
        """As where the program was built with another MPI than its launcher is of."""
        os.environ["PMI_SIZE"] = "2"
        self.addCleanup(os.environ.pop, "PMI_SIZE")
        process = self.start("--config", "run.yaml", "--set", "train_iters=3")
        out, err = process.communicate(timeout=100)
        self.assertEqual((process.returncode, out), (3, ""), err)
        self.assertIn("the launcher started processes that MPI did not bring together", err)


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
    for name in [name for name in os.environ if name.startswith("SLURM_")]:  # of a job in which this test runs
        del os.environ[name]
    with PrivateSlurm() as slurm:
        os.environ |= slurm.environment
        unittest.main(argv=[*sys.argv[:1], *(args.tests or ["Srun", "Alone", *AS_PROCESSES])])
