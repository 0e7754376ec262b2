#!/usr/bin/env python3
"""Opens the page of `ckpt-inspect html` in headless Chromium, searches it and reads a row. Exits 77 where there is no Chromium.

    html_browser_test.py --bin DIR

The search is that of the page's own link (#q=WORDS), which fills its field. What is read is the document after its script ran.
"""
import argparse
import html.parser
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "hf" / "qwen3moe-norm-bf16" / "ckpt"
SKIPPED = 77
BIN = None
CHROMIUM = None


class Document(html.parser.HTMLParser):
    """The rows of the table of tensors, the title, and how often each element occurs."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.title, self.count, self.found = [], "", {}, ""
        self._inside, self._in = [], {"rows": False}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        name = dict(attributes).get("id")
        self._inside.append((tag, name))
        if self._is_in("rows"):
            if tag == "tr":
                self.rows.append([])
            elif tag == "td":
                self.rows[-1].append("")

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self._is_in("rows") and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data
        elif self._is_in("found"):
            self.found += data
        elif self._inside and self._inside[-1][0] == "title" and "svg" not in [tag for tag, _ in self._inside]:
            self.title += data

    def _is_in(self, name):
        return any(part == name for _, part in self._inside)


class PageTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="ckptkit-browser-")
        self.folder = pathlib.Path(self.scratch.name)
        self.addCleanup(self.scratch.cleanup)

    def open(self, checkpoint, words):
        page = self.folder / "page.html"
        subprocess.run([BIN / "ckpt-inspect", "html", checkpoint, "-o", page, "--overwrite", "--quiet"], check=True)
        link = page.as_uri() + "#q=" + urllib.parse.quote(words)
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   f"--user-data-dir={self.folder / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000",
                   "--dump-dom", link]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return Document(done.stdout)

    def test_searches_and_reads_a_row(self):
        document = self.open(GOLDEN, "layers.1 experts.3.down")
        self.assertEqual(len(document.rows), 1, document.rows)
        key, dtype, shape, size, chunks, files = document.rows[0]
        self.assertEqual((key, dtype, shape), ("model.layers.1.mlp.experts.3.down_proj.weight", "bfloat16", "[40, 24]"))
        self.assertEqual((size, chunks), ("1.9 KiB", "1"))
        weights = json.loads((GOLDEN / "model.safetensors.index.json").read_text())["weight_map"]
        self.assertEqual(files, weights[key])
        self.assertEqual(document.found, f"1 of {len(weights)} tensors")

    def test_shows_all_without_a_search(self):
        document = self.open(GOLDEN, "")
        weights = json.loads((GOLDEN / "model.safetensors.index.json").read_text())["weight_map"]
        self.assertEqual([row[0] for row in document.rows], sorted(weights))
        self.assertGreater(document.count["rect"], 5)

    def test_finds_nothing(self):
        document = self.open(GOLDEN, "no such tensor")
        self.assertEqual(document.rows, [])
        self.assertTrue(document.found.startswith("0 of "), document.found)

    def test_a_hostile_key_is_only_text(self):
        key = "</script></title><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
        header = json.dumps({key: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        path = self.folder / "hostile.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        document = self.open(path, "onerror")
        self.assertEqual([row[0] for row in document.rows], [key])
        self.assertTrue(document.title.endswith("hostile.safetensors"), document.title)
        self.assertNotIn("img", document.count)
        self.assertEqual(document.count["script"], 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    arguments, rest = parser.parse_known_args()
    BIN = arguments.bin.resolve()
    CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if CHROMIUM is None:
        print("no Chromium here: tools/dev/setup --browser installs it")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *rest])
