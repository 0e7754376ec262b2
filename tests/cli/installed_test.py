#!/usr/bin/env python3
"""What `cmake --install` puts beside the tools: bash completes with it, and the man pages render.

    installed_test.py --bin DIR --build DIR
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = {"ckpt-convert": "hf-to-fsdp", "ckpt-inspect": "digest", "ckpt-train": "check"}
BIN = None
BUILD = None

COMPLETE = r"""
source "$1"; shift
compopt() { :; }  # only inside an interactive completion
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"_${1//-/_}"
printf '%s\n' "${COMPREPLY[@]}"
"""


def printed(tool, *arguments):
    return subprocess.run([BIN / tool, *arguments], check=True, capture_output=True, text=True).stdout


class Completion(unittest.TestCase):
    def complete(self, *words):
        """What bash offers for the last of these words."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "script"
            script.write_text(printed(words[0], "--print-completion", "bash"))
            (pathlib.Path(folder) / "a model.safetensors").touch()
            (pathlib.Path(folder) / "assets").mkdir()
            done = subprocess.run(["bash", "-c", COMPLETE, "bash", script, *words], cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.stderr, "")
            return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []

    def test_verbs(self):
        self.assertEqual(self.complete("ckpt-convert", "hf"), ["hf-to-fsdp", "hf-to-torch-dist"])
        self.assertIn("verify", self.complete("ckpt-inspect", ""))

    def test_options_of_the_verb(self):
        self.assertEqual(self.complete("ckpt-convert", "hf-to-fsdp", "--transf"), ["--transformer-impl"])
        self.assertEqual(self.complete("ckpt-convert", "fsdp-to-hf", "--transf"), [])
        self.assertEqual(self.complete("ckpt-inspect", "digest", "run", "--alg"), ["--algorithm"])

    def test_values(self):
        self.assertEqual(self.complete("ckpt-convert", "hf-to-fsdp", "a", "b", "--dtype", "b"), ["bfloat16"])
        self.assertEqual(self.complete("ckpt-convert", "hf-to-fsdp", "--dtype", "=", "b"), ["bfloat16"])
        self.assertEqual(self.complete("ckpt-convert", "hf-to-fsdp", "--files", ""), [])

    def test_paths(self):
        self.assertEqual(self.complete("ckpt-convert", "hf-to-fsdp", "a"), ["a model.safetensors", "assets"])
        self.assertEqual(self.complete("ckpt-convert", "hf-to-fsdp", "--hf-assets", "a"), ["assets"])

    def test_a_default_verb_takes_paths_at_once(self):
        self.assertEqual(self.complete("ckpt-inspect", "a m"), ["a model.safetensors"])

    def test_every_option_of_the_help_page(self):
        for tool, verb in TOOLS.items():
            offered = self.complete(tool, verb, "--")
            for word in printed(tool, verb, "--help").split():
                if word.startswith("--") or ",--" in word:
                    self.assertIn(word.split(",")[-1], offered)


class ManPage(unittest.TestCase):
    def test_renders_without_a_warning(self):
        groff = shutil.which("groff")
        for tool, verb in TOOLS.items():
            page = printed(tool, "--print-man-page")
            self.assertTrue(page.startswith(f".TH {tool.upper()} 1 "))
            if groff is None:
                print("groff is not installed: structure only")
                continue
            done = subprocess.run([groff, "-man", "-Tutf8", "-ww", "-P-c"], input=page, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            text = re.sub(".\x08", "", done.stdout)  # bold by overstriking
            for words in (verb, "--memory-budget", "EXIT STATUS", f"{tool} {verb}"):
                self.assertIn(words, text)


class Installation(unittest.TestCase):
    """Of a build of the programs alone, as tools/dev/demo leaves it."""

    def test_lacks_nothing_that_the_programs_targets_do_not_make(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cmake", "--install", BUILD, "--prefix", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            installed = {path.name for path in pathlib.Path(folder).rglob("*") if path.is_file()}
            for tool in TOOLS:
                self.assertLessEqual({tool, f"_{tool}", f"{tool}.fish", f"{tool}.1"}, installed)
                self.assertEqual(subprocess.run([pathlib.Path(folder) / "bin" / tool, "--version"], capture_output=True).returncode, 0)
        commands = subprocess.run(["cmake", "--build", BUILD, "--target", *TOOLS, "--", "-t", "commands", *TOOLS], check=True,
                                  capture_output=True, text=True).stdout
        for name in installed:
            self.assertIn(name, commands)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    arguments, rest = parser.parse_known_args()
    BIN, BUILD = arguments.bin, arguments.build
    unittest.main(argv=[sys.argv[0], *rest])
