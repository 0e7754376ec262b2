#!/usr/bin/env python3
"""Replays console transcripts: runs every command and compares what it says.

    run_console.py --bin DIR [--update] FILE.console | GUIDE.md ...

A transcript is a sequence of

    $ command            run by bash in an empty folder with a link `tests` to the project's; DIR is on the PATH
    a line               of standard output, in which `…` stands for anything
    ! a line             of standard error
    [exit 2]             the exit code, left out when it is 0

In a Markdown file every ```console block is a transcript, one after another in the same folder; a command without a
line below it may say anything, and commands of tools/dev are not run. --update writes what came out into FILE.console.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def transcripts(path):
    """[(command, [expected lines])] of a file."""
    text = path.read_text()
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"^```console\n(.*?)^```", text, re.M | re.S))
    steps = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif line.startswith("#") and path.suffix != ".md" and not steps:
            continue  # what the case is about
        elif steps and (line or steps[-1][1]):
            steps[-1][1].append(line)
    for _, expected in steps:
        while expected and not expected[-1]:
            expected.pop()
    return steps


def run(command, folder, bin_dir):
    """What the transcript of this command looks like."""
    environment = {"PATH": f"{bin_dir}:{os.environ['PATH']}", "HOME": str(folder), "LC_ALL": "C.UTF-8", "COLUMNS": "100",
                   "CUDA_VISIBLE_DEVICES": ""}  # what is printed is the CPU's, also where there is a GPU
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    lines = done.stdout.rstrip("\n").splitlines() + ["! " + line if line else "!" for line in done.stderr.splitlines()]
    return lines + ([f"[exit {done.returncode}]"] if done.returncode else [])


def matches(expected, actual):
    if len(expected) != len(actual):
        return False
    pattern = lambda line: ".*".join(map(re.escape, line.split("…")))
    return all(re.fullmatch(pattern(e), a) for e, a in zip(expected, actual))


def replay(path, bin_dir, update):
    """Problems found."""
    problems, written = [], []
    with tempfile.TemporaryDirectory(prefix="ckptkit-console-") as folder:
        (pathlib.Path(folder) / "tests").symlink_to(ROOT / "tests")
        for command, expected in transcripts(path):
            if command.startswith("tools/dev/"):
                continue
            actual = run(re.sub(r"\s+# .*", "", command) if path.suffix == ".md" else command, folder, bin_dir)
            written += ["$ " + command, *(expected if matches(expected, actual) else actual), ""]
            failed = actual and actual[-1].startswith("[exit ")
            if path.suffix == ".md" and not expected:
                if failed:
                    problems.append(f"$ {command}\n" + "\n".join(actual))
            elif not matches(expected, actual):
                problems.append(f"$ {command}\n--- expected\n" + "\n".join(expected) + "\n--- actual\n" + "\n".join(actual))
    if update and path.suffix == ".console" and problems:
        head = [line for line in path.read_text().splitlines() if line.startswith("#")]
        path.write_text("\n".join(head + written[:-1]) + "\n")
        print(f"updated {path}")
        return []
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    failed = False
    for path in args.files:
        if not transcripts(path):
            print(f"{path}: no command in it")
            failed = True
        for problem in replay(path, args.bin.resolve(), args.update):
            print(f"{path}:\n{problem}\n")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
