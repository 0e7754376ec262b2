#!/usr/bin/env python3
"""Every option that a hint of the sources names belongs to the tool that may print it, core names neither options nor tools, and settings take
the words of the guides.

    hints_test.py --bin DIR

Of a hint, the tool is the last one that the hint names before the option (srun, which is not ours, among them); else the one whose folder the source
lies in (trainer/ is ckpt-train's); else, in a library that all tools use, every one of them.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ("ckpt-convert", "ckpt-inspect", "ckpt-train")
OTHERS = ("srun",)  # programs that are not ours, whose options hints name
BIN = None

LITERAL = r'"(?:[^"\\]|\\.)*"'
# .Hint(…), hint = …, and constants that hints are made of: everything up to the end of the statement.
HINT = re.compile(rf"(?:\bHint\(|\bhint\s*=|constexpr std::string_view k\w+\s*=)((?:{LITERAL}|[^;\"])*);")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def options_of(tool):
    page = subprocess.run([BIN / tool, "--print-man-page"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"--[a-z][a-z0-9-]*", page.replace("\\-", "-")))


def hints():
    """(file, text) of every hint."""
    for folder in ("core", "formats", "converters", "tools", "trainer"):
        for path in sorted((ROOT / folder).rglob("*.[ch]*")):
            for statement in HINT.findall(path.read_text()):
                yield path.relative_to(ROOT), "".join(literal[1:-1] for literal in re.findall(LITERAL, statement))


# A text (raw ones first), a character or a comment.
TOKEN = re.compile(rf"""R"\((.*?)\)"|({LITERAL})|'(?:[^'\\\n]|\\.)'|//[^\n]*""", re.S)


def tool_words(code):
    """Options and tools that the texts of a source name."""
    words = re.compile(rf"{OPTION.pattern}|{'|'.join(TOOLS)}")
    return [word for raw, literal in TOKEN.findall(code) for word in words.findall(raw or literal[1:-1])]


def wrong_options(path, text, options):
    """[(option, tools that lack it)] of one hint."""
    folder = ["ckpt-train"] if path.parts[0] == "trainer" else [tool for tool in TOOLS if tool in path.parts]
    wrong = []
    for match in OPTION.finditer(text):
        named = re.findall("|".join(TOOLS + OTHERS), text[:match.start()])
        if named and named[-1] in OTHERS:
            continue
        printers = named[-1:] or folder or TOOLS
        lacking = [tool for tool in printers if match.group() not in options[tool]]
        if lacking:
            wrong.append((match.group(), lacking))
    return wrong


class Hints(unittest.TestCase):
    def test_name_options_that_their_tool_has(self):
        options = {tool: options_of(tool) for tool in TOOLS}
        wrong, seen = [], 0
        for path, text in hints():
            seen += len(OPTION.findall(text))
            wrong += [f"{path}: {option} is not an option of {', '.join(lacking)}: {text}"
                      for option, lacking in wrong_options(path, text, options)]
        self.assertGreater(seen, 15)
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_the_test_finds_a_wrong_one(self):
        options = {"ckpt-convert": {"--overwrite"}, "ckpt-inspect": set(), "ckpt-train": set()}
        library, tool = pathlib.Path("core/io/x.cc"), pathlib.Path("tools/ckpt-inspect/x.cc")
        self.assertEqual(wrong_options(library, "pass --overwrite", options), [("--overwrite", ["ckpt-inspect", "ckpt-train"])])
        self.assertEqual(wrong_options(tool, "pass --overwrite", options), [("--overwrite", ["ckpt-inspect"])])
        self.assertEqual(wrong_options(tool, "ckpt-convert --overwrite does it", options), [])
        self.assertEqual(wrong_options(library, "srun --mpi=pmix does it", options), [])
        self.assertEqual(wrong_options(tool, "srun --mpi=pmix ckpt-convert --parity", options), [("--parity", ["ckpt-convert"])])


class Core(unittest.TestCase):
    def test_names_no_option_and_no_tool(self):
        paths = sorted((ROOT / "core").rglob("*.[ch]*"))
        self.assertGreater(len(paths), 100)
        wrong = {str(path.relative_to(ROOT)): words for path in paths if (words := tool_words(path.read_text()))}
        self.assertEqual(wrong, {})

    def test_the_test_finds_a_wrong_one(self):
        self.assertEqual(tool_words('.Hint("lower --threads")'), ["--threads"])
        self.assertEqual(tool_words('if (c == \'"\') return "ckpt-inspect repair PATH";  // as "--json"'), ["ckpt-inspect"])
        self.assertEqual(tool_words(r'f("https://x", R"({"a":")", "--json")'), ["--json"])
        self.assertEqual(tool_words('"ckptkit-parity", "a -- b"'), [])


SETTING = re.compile(r"setting (\w+) has an unknown value: expected (.*), found")
WORD = re.compile(r"`([\w-]+)`")


def described_settings():
    """Setting -> the cells of its row in the guides."""
    rows = {}
    for guide in ("train", "model-settings"):
        for line in (ROOT / "docs" / "guides" / f"{guide}.md").read_text().splitlines():
            if line.startswith("| `"):
                cells = line.strip("|").split("|")
                rows |= {name: cells for name in re.findall(r"`(\w+)`", cells[0])}
    return rows


class SettingWords(unittest.TestCase):
    def test_errors_and_guides_say_the_same(self):
        rows = described_settings()
        wrong = [word for name in rows if name not in ("init", "load") for word in ("--set", f"{name}=zzz")]
        done = subprocess.run([BIN / "ckpt-train", "explain", "--ranks", "1", *wrong], capture_output=True, text=True)
        taken = {name: set(words.split(", ")) for name, words in SETTING.findall(done.stderr)}
        self.assertGreater(len(taken), 20, done.stderr)
        for name, words in taken.items():
            with self.subTest(name):
                cells = rows[name] + (rows["params_dtype"] if name.endswith("_dtype") else [])
                self.assertLessEqual(words, set(WORD.findall(" ".join(cells[1:]))), "words that the guide lacks")
                if cells[0].count("`") == 2:
                    self.assertLessEqual(set(WORD.findall(cells[1])), words, "words that the tool does not take")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    arguments, rest = parser.parse_known_args()
    BIN = arguments.bin
    unittest.main(argv=[sys.argv[0], *rest])
