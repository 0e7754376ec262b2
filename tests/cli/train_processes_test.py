#!/usr/bin/env python3
"""A training as processes: a signal saves and ends it in order, and ranks are MPI processes as well as threads.

    train_processes_test.py --bin DIR [--mpiexec COMMAND] [--device cuda] [TEST]...

--device is that of all runs. On GPUs, these are for the tests whose ranks fail: one for each, or one that says of each that it is on
another host.
"""
import argparse
import errno
import fcntl
import json
import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from small_disk import SmallDisk, grow

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = None
DEVICE = "cpu"
RANKS = 2
LAUNCHER = ()  # starts RANKS processes of the command behind it
RANK = "${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}"  # of a process, to its shell: by mpirun, by srun

SETTINGS = """
model: {num_layers: 1, hidden_size: 24, ffn_hidden_size: 32, num_attention_heads: 2, vocab_size: 258, num_experts: 4}
mesh: {expert_model_parallel_size: 2}
batch: {seq_length: 16, global_batch_size: 8}
data_path: data.jsonl
lr: 1e-2
log_interval: 1
"""


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ckptkit-train-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "run.yaml").write_text(SETTINGS)
        (self.folder / "data.jsonl").write_text("".join(json.dumps({"text": "one two three " * 6}) + "\n" for _ in range(24)))

    def start(self, *options, launcher=()):
        process = subprocess.Popen([*launcher, BIN / "ckpt-train", "train", "--device", DEVICE, "--threads", "1", *options],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)  # a test that fails leaves nothing behind
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err)
        return out, err

    def threads(self, *options):
        return self.finish(self.start("--ranks", str(RANKS), *options))

    def read_steps(self, process, steps):
        for _ in range(steps):
            self.assertTrue(process.stdout.readline().startswith("step "))

    def digest(self, out):
        self.assertTrue(out.splitlines()[-1].startswith("state-digest "), out)
        return out.splitlines()[-1]

    def steps_saved(self):
        return int((self.folder / "out" / "latest_checkpointed_iteration.txt").read_text())


class Signals(Training):
    def test_a_signal_saves_and_the_run_goes_on_as_if_nothing_had_happened(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(number.name):
                process = self.start("--config", "run.yaml", "--ranks", "2", "--load", "out", "--save", "out", "--set",
                                     "train_iters=1000000")
                self.read_steps(process, 3)
                process.send_signal(number)
                _, err = self.finish(process)
                self.assertIn("as a signal asked: saved in out", err)
        stopped = self.steps_saved()
        out, _ = self.threads("--config", "run.yaml", "--load", "out", "--set", f"train_iters={stopped + 2}",
                              "--print-state-digest")
        whole, _ = self.threads("--config", "run.yaml", "--set", f"train_iters={stopped + 2}", "--print-state-digest")
        self.assertEqual(self.digest(out), self.digest(whole))

    def test_a_signal_ends_an_evaluation(self):
        process = self.start("--config", "run.yaml", "--ranks", "2", "--load", "out", "--save", "out", "--set", "train_iters=9",
                             "--set", "valid_data_path=data.jsonl", "--set", "eval_interval=1", "--set", "eval_iters=1000000000")
        self.assertIn("drew the weights", process.stderr.readline())
        self.assertIn("starting from random weights", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        out, err = self.finish(process)
        self.assertIn("stopped after step 1, as a signal asked: saved in out", err)
        self.assertNotIn("eval loss", out)
        self.assertEqual(self.steps_saved(), 1)

    def test_a_second_run_into_the_folder_is_refused_at_once(self):
        options = ("--config", "run.yaml", "--load", "out", "--save", "out", "--set", "train_iters=1000000")
        first = self.start("--ranks", "2", *options, "--metrics", "metrics.jsonl", "--set", "tensorboard_dir=events")
        self.read_steps(first, 1)
        for launcher in ((), LAUNCHER) if LAUNCHER else ((),):
            with self.subTest(launcher=launcher):
                second = self.start(*(() if launcher else ("--ranks", "2")), *options, launcher=launcher)
                out, err = second.communicate(timeout=100)
                self.assertEqual(second.returncode, 3, err)
                self.assertIn("another run is writing this target", err)
                self.assertEqual(out, "")
        # Its own folder does not help where it writes the metrics of the first.
        third = self.start("--config", "run.yaml", "--ranks", "2", "--save", "other", "--set", "train_iters=9", "--metrics",
                           "metrics.jsonl", "--set", "tensorboard_dir=tb")
        _, err = third.communicate(timeout=100)
        self.assertEqual(third.returncode, 3, err)
        self.assertIn("another run is writing this file: metrics.jsonl", err)
        self.assertFalse((self.folder / "other").exists() or (self.folder / "tb").exists(), "left by a run that was refused")
        fourth = self.start("--config", "run.yaml", "--ranks", "2", "--set", "train_iters=9", "--set", "tensorboard_dir=events")
        _, err = fourth.communicate(timeout=100)
        self.assertEqual(fourth.returncode, 3, err)
        self.assertIn("another run is writing this target: ", err)
        first.send_signal(signal.SIGTERM)
        self.finish(first)

    def test_a_killed_run_goes_on_from_its_last_checkpoint(self):
        options = ("--config", "run.yaml", "--load", "out", "--save", "out", "--metrics", "metrics.jsonl")
        process = self.start(*options, "--ranks", "2", "--set", "train_iters=1000000", "--set", "save_interval=2")
        self.read_steps(process, 7)
        process.kill()
        process.communicate()
        out, _ = self.threads(*options, "--set", f"train_iters={self.steps_saved() + 3}", "--print-state-digest")
        steps = self.steps_saved()
        whole, _ = self.threads("--config", "run.yaml", "--set", f"train_iters={steps}", "--print-state-digest")
        self.assertEqual(self.digest(out), self.digest(whole))
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], list(range(1, steps + 1)))


class Lines(Training):
    def test_an_error_is_a_line_in_the_stream_of_steps(self):
        process = self.start("--config", "run.yaml", "--ranks", "2", "--json", "--set", "train_iters=9", "--set", "lr=1e30", "--set",
                             "clip_grad=0", "--set", "optimizer=sgd")
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 3, err)
        *steps, last = map(json.loads, out.splitlines())
        self.assertEqual([line["step"] for line in steps], [1])
        self.assertEqual((last["ok"], [error["kind"] for error in last["errors"]]), (False, ["value_mismatch"]))
        self.assertIn("not finite in step 2", last["errors"][0]["message"])


class Terminal(Training):
    def phases(self, *options):
        """The names of the bars that a run shows on a terminal."""
        screen, terminal = pty.openpty()
        self.addCleanup(os.close, screen)
        process = subprocess.Popen([BIN / "ckpt-train", "train", "--device", DEVICE, "--threads", "1", *options],
                                   cwd=self.folder, stdout=terminal, stderr=terminal, text=True)
        os.close(terminal)
        shown = b""
        try:
            while some := os.read(screen, 4096):
                shown += some
        except OSError as error:  # what Linux says when nobody writes there any more
            self.assertEqual(error.errno, errno.EIO)
        self.assertEqual(process.wait(timeout=100), 0, shown)
        return {name.decode() for name in re.findall(rb"\x1b\[K([a-z]+) +\d+%", shown)}

    def test_each_phase_has_a_bar_with_its_name(self):
        options = ("--config", "run.yaml", "--ranks", "2", "--load", "out", "--save", "out")
        self.assertEqual(self.phases(*options, "--set", "train_iters=2"), {"train", "save"})
        self.assertEqual(self.phases(*options, "--set", "train_iters=4"), {"load", "train", "save"})
        self.assertEqual(self.phases(*options, "--set", "train_iters=5", "--quiet"), set())


class Mpi(Training):
    def setUp(self):
        super().setUp()
        if not LAUNCHER:
            self.skipTest("no MPI launcher")
        self.launcher = LAUNCHER

    def test_processes_end_with_the_bits_of_threads(self):
        options = ("--config", "run.yaml", "--set", "train_iters=6", "--print-state-digest")
        threads, _ = self.threads(*options)
        first, _ = self.finish(self.start(*options, "--save", "out", "--set", "exit_interval=3", launcher=self.launcher))
        processes, _ = self.finish(self.start(*options, "--load", "out", "--prove", launcher=self.launcher))
        self.assertEqual(first.count("step 3/6"), 1)
        self.assertEqual(self.digest(processes), self.digest(threads))

    def test_flex_is_for_threads(self):
        options = ("--config", "run.yaml", "--set", "train_iters=3", "--print-state-digest")
        flex = ("--set", "moe_token_dispatcher_type=flex")
        usual, _ = self.threads(*options)
        threads, _ = self.threads(*options, *flex)
        self.assertEqual(self.digest(threads), self.digest(usual))
        refused = self.start(*options, *flex, launcher=self.launcher)
        _, err = refused.communicate(timeout=100)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("moe_token_dispatcher_type=flex needs ranks that read each other's memory", err)

    def test_a_signal_to_one_process_ends_all(self):
        tell_pid = ("bash", "-c", f'echo $$ > pid.{RANK} && exec "$0" "$@"')
        process = self.start("--config", "run.yaml", "--save", "out", "--set", "train_iters=1000000",
                             launcher=(*self.launcher, *tell_pid))
        self.read_steps(process, 3)
        os.kill(int((self.folder / "pid.1").read_text()), signal.SIGTERM)
        self.finish(process)
        self.assertGreaterEqual(self.steps_saved(), 3)

    def test_a_signal_that_the_launcher_hands_on_ends_all(self):
        process = self.start("--config", "run.yaml", "--save", "out", "--set", "train_iters=1000000", launcher=self.launcher)
        self.read_steps(process, 3)
        process.send_signal(signal.SIGUSR1)
        _, err = self.finish(process)
        self.assertIn("as a signal asked: saved in out", err)
        self.assertGreaterEqual(self.steps_saved(), 3)

    def test_the_guides_script_ends_with_0_whatever_signal_it_gets(self):
        blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / "docs" / "guides" / "train.md").read_text(), re.M | re.S)
        script, = [block for block in blocks if "trap" in block]
        command = "mpirun -n 8 ckpt-train --config run.yaml --load out --save out"
        self.assertIn(command, script)
        launched = shlex.join(map(str, (*self.launcher, BIN / "ckpt-train", "--device", DEVICE, "--threads", "1", "--config", "run.yaml",
                                        "--load", "out", "--save", "out", "--set", "train_iters=1000000")))
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number.name):
                process = subprocess.Popen(["bash", "-c", script.replace(command, launched)], cwd=self.folder,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.read_steps(process, 3)
                process.send_signal(number)
                _, err = self.finish(process)
                self.assertIn("as a signal asked: saved in out", err)

    def test_one_process_tells_of_an_error_that_all_have(self):
        runs_away = ("--set", "train_iters=9", "--set", "lr=1e30", "--set", "clip_grad=0")
        (self.folder / "taken").mkdir()
        lock = os.open(self.folder / "taken", os.O_RDONLY)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for options, code, says in ((("--set", "learning_rate=1"), 2, "there is no setting learning_rate"),
                                    (("--sett", "lr=1"), 2, "error: usage:"),
                                    (("--set", "train_iters=9", "--load", "mistyped"), 3, "there is no checkpoint to load"),
                                    (runs_away, 3, "not finite in step"),
                                    (("--set", "train_iters=9", "--save", "taken"), 3, "another run is writing this target")):
            with self.subTest(says):
                process = self.start("--config", "run.yaml", *options, launcher=self.launcher)
                _, err = process.communicate(timeout=100)
                self.assertEqual(process.returncode, code, err)
                self.assertEqual(err.count(says), 1, err)
                self.assertNotIn("\\x0a", err)
                self.assertNotIn("cancelled", err)

    def test_help_is_printed_once(self):
        out, _ = self.finish(subprocess.Popen([*self.launcher, BIN / "ckpt-train", "--help"], stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True))
        self.assertEqual(out.count("Usage"), 1, out)

    def test_a_process_that_fails_alone_ends_all(self):
        only_first = ("bash", "-c", f'test {RANK} = 0 && exec "$0" "$@"; exec "$0" "$@" --set clip_grad=-1')
        process = self.start("--config", "run.yaml", "--set", "train_iters=9", launcher=(*self.launcher, *only_first))
        _, err = process.communicate(timeout=100)
        self.assertNotEqual(process.returncode, 0, err)
        self.assertIn("setting clip_grad is not a valid number", err)

    def test_a_process_that_finds_no_checkpoint_ends_all_whoever_reads_for_the_others(self):
        options = ("--config", "run.yaml", "--set", "train_iters=2", "--quiet")
        self.threads(*options, "--save", "out")
        for failing in range(RANKS):
            with self.subTest(failing=failing):
                own_place = ("bash", "-c", f'test {RANK} = {failing} && exec "$0" "$@" --load mistyped; exec "$0" "$@" --load out')
                process = self.start(*options, launcher=(*self.launcher, *own_place))
                _, err = process.communicate(timeout=100)
                self.assertEqual(process.returncode, 3, err)
                self.assertIn("error: not_found: there is no checkpoint to load: mistyped", err)

    def test_numbers_that_run_away_end_all(self):
        process = self.start("--config", "run.yaml", "--set", "train_iters=9", "--set", "lr=1e30", "--set", "clip_grad=0",
                             launcher=self.launcher)
        _, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 3, err)
        self.assertIn("not finite in step", err)


class Launchers(Training):
    """What a launcher says in the environment, and MPI does not find."""

    def setUp(self):
        super().setUp()
        if not LAUNCHER:
            self.skipTest("no MPI launcher")
        for name in [name for name in os.environ if name.startswith(("PMI", "PALS_"))]:  # of a job in which this test runs
            self.addCleanup(os.environ.__setitem__, name, os.environ.pop(name))

    def refused(self, *options, code, **environment):
        os.environ |= environment
        for name in environment:
            self.addCleanup(os.environ.pop, name, None)
        process = self.start("--config", "run.yaml", "--set", "train_iters=3", *options)
        out, err = process.communicate(timeout=100)
        self.assertEqual((process.returncode, out), (code, ""), err)
        return err

    def test_tasks_of_srun_that_cannot_find_each_other_are_refused_by_the_first(self):
        for task in ("0", "1"):
            with self.subTest(task=task):
                says = [self.refused(code=3, SLURM_STEP_NUM_TASKS="2", SLURM_PROCID=task),
                        self.refused("--set", "lr=-1", code=2, SLURM_STEP_NUM_TASKS="2", SLURM_PROCID=task)]
                if task == "0":
                    self.assertIn("the tasks that srun started have no way to find each other", says[0])
                    self.assertIn("setting lr is not a valid number", says[1])
                else:
                    self.assertNotIn("error", "".join(says))

    def test_processes_that_mpi_does_not_bring_together_are_refused(self):
        """As where the program was built with another MPI than its launcher is of."""
        self.assertIn("the launcher started processes that MPI did not bring together", self.refused(code=3, PMI_SIZE="2"))


class FaultyRun(Training):
    """A run of two ranks, processes where nothing else is said, to which something happens."""

    MINUTES = 0.05
    # For the question who is missing.
    ANSWERS = 3
    # For the launcher to end what is left.
    AFTER_IT = 30

    def setUp(self):
        super().setUp()
        if not LAUNCHER:
            self.skipTest("no MPI launcher")

    def start_run(self, *options, launcher=(), save="out", threads=False):
        options = ("--config", "run.yaml", "--load", save, "--save", save, "--set", "save_interval=2", *options)
        if threads:
            return self.start("--ranks", str(RANKS), *options)
        tell_pid = ("bash", "-c", f"echo $$ > pid.{RANK}; (($(nvidia-smi --list-gpus 2> /dev/null | wc -l) >= "
                    f"{RANKS})) || export NCCL_HOSTID={RANK}; " 'exec "$0" "$@"')
        return self.start(*options, launcher=(*LAUNCHER, *launcher, *tell_pid))

    def signal_rank_1(self, number):
        os.kill(int((self.folder / "pid.1").read_text()), number)

    def ends(self, process, code):
        """What the run says."""
        _, err = process.communicate(timeout=60 * self.MINUTES + self.AFTER_IT)
        self.assertEqual(process.returncode, code, err)
        return err

    def goes_on(self, *options, threads=False, save="out"):
        """The last checkpoint is whole, and leads where a run leads that nothing happened to."""
        steps = int((self.folder / save / "latest_checkpointed_iteration.txt").read_text()) + 3
        options = (*options, "--set", f"train_iters={steps}", "--print-state-digest")
        out, _ = self.finish(self.start_run("--prove", *options, save=save, threads=threads))
        whole, _ = self.finish(self.start_run(*options, save="whole", threads=threads))
        self.assertEqual(self.digest(out), self.digest(whole))

    def names_rank_1(self, err):
        said = re.search(r"rank 0 gave up: .*rank 1 is missing: expected (.*), call \d+ of a group of 2 ranks, to end within 3 s, "
                         r"found no answer from rank 1", err)
        self.assertTrue(said, err)
        if DEVICE == "cuda":
            self.assertRegex(said[1], "all-gather|reduce-scatter|all-reduce|all-to-all|exchange")

    def endless(self, *options, launcher=(), threads=False):
        in_time = () if threads else ("--set", f"distributed_timeout_minutes={self.MINUTES}")
        process = self.start_run("--set", "train_iters=1000000", *in_time, *options, launcher=launcher, threads=threads)
        self.addCleanup(process.kill)
        process.stderr.readline()  # it starts from random weights
        return process


class Faults(FaultyRun):
    """One of two processes stops for good. The other must end in time, and say who is missing where."""

    def running(self, *options, launcher=()):
        process = self.endless(*options, launcher=launcher)
        self.read_steps(process, 5)
        return process

    def ends_in_time(self, process, number, code):
        """What the run says after rank 1 got the signal."""
        self.signal_rank_1(number)
        return self.ends(process, code)

    def test_a_rank_that_hangs_is_named(self):
        for options in ((), ("--set", "async_save=true", "--set", "overlap_grad_reduce=true", "--set", "overlap_param_gather=true")):
            with self.subTest(options=options):
                self.names_rank_1(self.ends_in_time(self.running(*options), signal.SIGSTOP, code=3))
        self.goes_on()

    def test_a_killed_rank_is_named_by_the_launcher(self):
        self.assertRegex(self.ends_in_time(self.running(), signal.SIGKILL, code=128 + signal.SIGKILL), r"process rank 1 .*exited on signal 9")
        self.goes_on()

    def test_a_killed_rank_is_named_where_the_launcher_does_not_care(self):
        process = self.running(launcher=("--enable-recovery",))
        self.names_rank_1(self.ends_in_time(process, signal.SIGKILL, code=0))  # the launcher's: it cares for no rank
        self.goes_on()

    def test_a_rank_that_comes_back_in_time_costs_nothing(self):
        process = self.start_run("--set", "train_iters=2000", "--set", f"distributed_timeout_minutes={self.MINUTES}")
        self.read_steps(process, 3)
        self.signal_rank_1(signal.SIGSTOP)
        time.sleep(60 * self.MINUTES / 3)
        self.signal_rank_1(signal.SIGCONT)
        self.signal_rank_1(signal.SIGTERM)
        self.finish(process)


class SaveFaults(FaultyRun):
    """The same while a checkpoint is written in the background, beside an older one that must stay whole."""

    # A save of some 90 MB, so that it is not over when it is seen to have begun.
    LARGE = ("--set", "async_save=true", "--set", "hidden_size=512", "--set", "ffn_hidden_size=1024", "--set", "log_interval=1000")

    def saving(self, threads=False):
        """A run in its second save or a later one, and the folder that it writes."""
        process = self.endless(*self.LARGE, threads=threads)
        out = self.folder / "out"
        while not ((out / "latest_checkpointed_iteration.txt").exists() and (unfinished := list(out.glob("iter_*.ckptkit-partial")))):
            self.assertIsNone(process.poll())
            time.sleep(0.0005)
        return process, unfinished[0]

    def is_left(self, unfinished):
        self.assertTrue(unfinished.exists(), "the save was over")
        self.assertFalse(unfinished.with_suffix("").exists())

    def test_a_rank_that_hangs_is_named_in_time(self):
        process, unfinished = self.saving()
        self.signal_rank_1(signal.SIGSTOP)
        begin = time.monotonic()
        said = iter(process.stderr.readline, "")
        line = next(line for line in said if "gave up" in line)
        took = time.monotonic() - begin
        self.names_rank_1(line)
        self.ends(process, code=3)
        # Rank 0 may have waited before the signal, and looks several times in that time.
        self.assertGreater(took, 0.8 * 60 * self.MINUTES)
        self.assertLess(took, 60 * self.MINUTES + self.ANSWERS + 3)
        self.is_left(unfinished)
        self.goes_on(*self.LARGE)

    def test_a_killed_rank_leaves_the_last_checkpoint(self):
        for threads in (False, True):
            with self.subTest(threads=threads):
                process, unfinished = self.saving(threads)
                if threads:
                    process.kill()
                    self.ends(process, code=-signal.SIGKILL)
                else:
                    self.signal_rank_1(signal.SIGKILL)
                    self.assertRegex(self.ends(process, code=128 + signal.SIGKILL), r"process rank 1 .*exited on signal 9")
                self.is_left(unfinished)
                self.goes_on(*self.LARGE, threads=threads)
                for name in ("out", "whole"):
                    shutil.rmtree(self.folder / name)

    def test_a_full_disk_ends_the_run_and_leaves_the_last_checkpoint(self):
        background = ("--set", "async_save=true")
        self.finish(self.start_run(*background, "--set", "train_iters=2", save="roomy"))
        save_bytes = sum(file.stat().st_size for file in (self.folder / "roomy").rglob("*") if file.is_file())
        for threads in (False, True):
            with self.subTest(threads=threads), SmallDisk(self, save_bytes * 7 // 2) as disk:
                process = self.start_run(*background, "--set", "train_iters=100000", save=disk / "out", threads=threads)
                err = self.ends(process, code=3)
                self.assertEqual(len(re.findall("error: no_space: " if threads else r"rank \d gave up: no_space: ", err)), 1, err)
                last = int((disk / "out" / "latest_checkpointed_iteration.txt").read_text())
                self.assertGreaterEqual(last, 2)
                self.assertRegex(err, rf"out/iter_{last:07} is complete: make room \(a save takes .* in all\) and resume it")
                grow(disk, 9 * save_bytes)
                self.goes_on(*background, threads=threads, save=disk / "out")
                shutil.rmtree(self.folder / "whole")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--mpiexec", default="")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="classes, or tests of them [all]")
    args = parser.parse_args()
    if args.device == "cuda" and not any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        print("SKIPPED: no GPU")
        sys.exit(77)
    BIN, DEVICE = args.bin.resolve(), args.device
    LAUNCHER = (args.mpiexec, "-n", str(RANKS)) if args.mpiexec else ()
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    unittest.main(argv=[*sys.argv[:1], *args.tests])
