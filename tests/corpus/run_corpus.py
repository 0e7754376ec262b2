#!/usr/bin/env python3
"""Runs ckpt-inspect on every case of the malicious corpus: run_corpus.py [--bin FOLDER] [--only PATTERN] [--jobs N].

Each verb runs in an empty folder, with an address space of one GiB over what the tool itself takes, a few seconds of
CPU time and no core file. It must end by itself with the declared exit code and findings, and leave no file behind.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import make_corpus  # noqa: E402

VERBS = ("verify", "tensors", "digest")
GIB = 1 << 30
BASELINE_BYTES = 256 << 20  # code, libraries and the stacks of two threads
MARKER = "ckptkit-was-executed"


def limits(seconds, address_bytes):
    def apply():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        if address_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))
    return apply


def sanitized(tool):
    """Sanitizers reserve terabytes of addresses: there is nothing to limit then."""
    done = subprocess.run([tool, "--version"], capture_output=True, preexec_fn=limits(5, GIB + BASELINE_BYTES))
    return done.returncode != 0


class Runner:
    def __init__(self, bin_folder, scratch, patience):
        self.bin = pathlib.Path(bin_folder)
        self.scratch = pathlib.Path(scratch)
        is_sanitized = sanitized(self.bin / "ckpt-inspect")
        self.address_bytes = 0 if is_sanitized else GIB + BASELINE_BYTES
        # ThreadSanitizer clears four bytes for each that is allocated, a hundred times slower than the program's own work.
        self.patience = 24 if is_sanitized else patience

    def can_tell(self, case):
        """Whether the answer does not hang on the limit of memory, or there is one."""
        return self.address_bytes or all(finding.message != "out of memory" for finding in case.outcome.findings)

    def run(self, command, seconds, cwd):
        seconds *= self.patience
        cwd.mkdir()
        try:
            done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, timeout=12 * seconds,
                                  env=os.environ | {"MALLOC_ARENA_MAX": "2"},
                                  preexec_fn=limits(seconds, self.address_bytes))
        except subprocess.TimeoutExpired:
            return None, None, "hangs"
        if done.returncode < 0:
            return None, None, f"killed by {signal.Signals(-done.returncode).name}: {done.stderr[-300:]!r}"
        left = [p.name for p in cwd.iterdir()]
        if left:
            return None, None, f"something was executed: {left}"
        try:
            document = json.loads(done.stdout)
        except ValueError:
            return None, None, f"no JSON document: {done.stdout[:200]!r} {done.stderr[-300:]!r}"
        return done.returncode, document, None

    def check(self, case):
        """What is wrong with the case, one line each."""
        try:
            path = make_corpus.write(case, self.scratch / "files")
        except OSError as e:
            return [f"cannot be written: {e}"]
        cwd = self.scratch / "cwd" / case.name
        cwd.mkdir(parents=True)
        wrong = []
        if case.command:
            places = {"@": path, "@folder": path.parent}
            command = [self.bin / case.command[0], *(places.get(a, a) for a in case.command[1:]), "--json"]
            code, document, failure = self.run(command, case.seconds, cwd / "command")
            if failure:
                return [failure]
            return compare("command", case.outcome.verify, case.outcome.findings, code, document)
        for verb in VERBS:
            threads = [] if verb == "tensors" else ["--threads", "2"]
            code, document, failure = self.run([self.bin / "ckpt-inspect", verb, path, "--json", *threads], case.seconds,
                                               cwd / verb)
            if failure:
                wrong.append(f"{verb}: {failure}")
                continue
            expected = getattr(case.outcome, verb)
            # `verify` lists everything; the others say why they refuse.
            findings = case.outcome.findings if verb == "verify" or case.outcome.tensors == 3 else None
            wrong += compare(verb, expected, findings, code, document)
            if findings is None and code != 0 and code == expected:
                kinds = {e["kind"] for e in document.get("errors") or document["problems"]}
                known = {f.kind for f in case.outcome.findings}
                if not kinds <= known and not (verb == "digest" and not case.outcome.has_tensors and kinds == {"not_found"}):
                    wrong.append(f"{verb}: refuses with {kinds}")
        return wrong + self.check_diff(case, path, cwd / "diff") + self.check_metadata_verbs(case, path, cwd)

    def check_metadata_verbs(self, case, path, cwd):
        """`html` draws what `tensors` lists; `plan` knows no model in it, and divides each tensor by itself, or refuses."""
        wrong = []
        page = cwd.parent / f"{cwd.name}.html"
        code, document, failure = self.run([self.bin / "ckpt-inspect", "html", path, "-o", page, "--json"], case.seconds, cwd / "html")
        if failure:
            wrong.append(f"html: {failure}")
        elif code != case.outcome.tensors or (code == 3) == page.exists():
            wrong.append(f"html: exit {code}, not {case.outcome.tensors}; a page: {page.exists()}")
        code, document, failure = self.run([self.bin / "ckpt-inspect", "plan", path, "--mesh", "dp=2", "--json"], case.seconds, cwd / "plan")
        if failure:
            wrong.append(f"plan: {failure}")
        elif code not in (0, 3) or (code == 0 and case.outcome.tensors == 3):
            wrong.append(f"plan: exit {code}")
        elif code == 3:
            kinds = {e["kind"] for e in document["errors"]}
            # bad_metadata: settings of a run that are none of a model, as jobs here have them.
            if not kinds or not kinds <= {"bad_metadata", *(f.kind for f in case.outcome.findings)}:
                wrong.append(f"plan: refuses with {kinds}")
        return wrong

    def check_diff(self, case, path, cwd):
        """A case differs from itself only where it cannot be read; a checksum alone does not stop it."""
        code, document, failure = self.run([self.bin / "ckpt-inspect", "diff", path, path, "--json", "--threads", "2"],
                                           2 * case.seconds, cwd)
        if failure:
            return [f"diff: {failure}"]
        is_system = any(f.kind == "system" for f in case.outcome.findings)
        if code == 3 and (case.outcome.tensors == 3 or is_system):
            return []
        if case.outcome.tensors == 3 and {f.kind for f in case.outcome.findings} != {"checksum"}:
            return [f"diff: exit {code}, not 3"]
        if code not in (0, 1) or document["equal"] != (code == 0):
            return [f"diff: exit {code}: {document}"]
        other = [d["what"] for d in document["different"] if d["what"] != "unreadable"]
        if other or document["only_a"] or document["only_b"]:
            return [f"diff: differs from itself: {other} {document['only_a']}"]
        if case.outcome.digest == 0 and code != 0:
            return [f"diff: {document['problems']} where digest finds none"]
        if code == 1 and not document["problems"]:
            return ["diff: exit 1 without a reason"]
        return []


def reported(document):
    return document.get("errors", document.get("problems", []))


def fits(finding, problem):
    return (problem["kind"] == finding.kind and finding.message in problem["message"]
            and problem.get("severity", "error") == finding.severity
            and (finding.tensor is None or problem["tensor"] == finding.tensor)
            and (finding.file is None or finding.file in (problem["file"] or "")))


def compare(what, expected_code, findings, code, document):
    wrong = [] if code == expected_code else [f"{what}: exit {code}, not {expected_code}"]
    if findings is None:
        return wrong
    problems = list(reported(document))
    for finding in findings:
        match = next((p for p in problems if fits(finding, p)), None)
        if match is None:
            wrong.append(f"{what}: does not say {finding}")
        else:
            problems.remove(match)
    brief = ("severity", "kind", "message", "file", "tensor", "actual")
    return wrong + [f"{what}: says {({k: p.get(k) for k in brief})}" for p in problems]


def print_counts(counts):
    print("  ".join(f"{group} {count}" for group, count in sorted(counts.items())), f"all {sum(counts.values())}", sep="  ")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--counts", action="store_true", help="only check that every class has the cases it promises")
    parser.add_argument("--only", default="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=int, default=1, help="times as long as a case may take: for instrumented programs")
    arguments = parser.parse_args()
    selected = make_corpus.cases(arguments.only)
    counts = make_corpus.counts(selected)
    if arguments.only == "*":
        missing = {g: n for g, n in make_corpus.LEAST.items() if counts[g] < n}
        if missing or len(selected) < make_corpus.LEAST_IN_ALL:
            sys.exit(f"fewer cases than promised: {missing or len(selected)}")
    if arguments.counts:
        print_counts(counts)
        return
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ckpt-corpus-") as scratch:
        runner = Runner(pathlib.Path(arguments.bin).resolve(), scratch, arguments.patience)
        left_out = [case.name for case in selected if not runner.can_tell(case)]
        selected = [case for case in selected if case.name not in left_out]
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for case, wrong in zip(selected, pool.map(runner.check, selected)):
                if wrong:
                    failed += 1
                    print(f"{case.name}: {case.attack}", *wrong, sep="\n    ")
    markers = [p for p in (pathlib.Path(tempfile.gettempdir()) / MARKER, pathlib.Path.home() / MARKER) if p.exists()]
    print_counts(counts)
    if left_out:
        print(f"left out, as nothing limits memory under a sanitizer: {', '.join(left_out)}")
    print(f"{len(selected)} cases, {failed} failed" + (f"; executed: {markers}" if markers else ""))
    sys.exit(1 if failed or markers else 0)


if __name__ == "__main__":
    main()
