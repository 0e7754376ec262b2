#!/usr/bin/env python3
"""What ckpt-convert writes, converted into every other form and back: what comes back is what was there.

    matrix_test.py --bin DIR [--update]

Every cell is measured: A is made of a golden, becomes B, and becomes A again; the tensors of both A are compared by digest.
Fails if a tensor that came back is another one, or if the tables of docs/conversions.md are not what was found; --update
writes them there.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "golden"
PAGE = ROOT / "docs" / "conversions.md"
BEGIN, END = "<!-- measured: tests/cli/matrix_test.py -->", "<!-- end of what is measured -->"

# What a column is called, and the options that make it.
FORMS = {
    "hf": ("--to", "hf"),
    "fsdp_dtensor": ("--to", "fsdp_dtensor"),
    "torch_dist": ("--to", "torch_dist", "--layer-keys", "stacked"),
    "torch_dist, 0.19": ("--to", "torch_dist", "--torch-dist-generation", "0.19", "--layer-keys", "per_layer"),
    "dcp, fsdp2": ("--to", "dcp", "--naming", "fsdp2", "--expert-layout", "fused"),
    "hdf5": ("--to", "hdf5"),
    "torch_save": ("--to", "torch_save"),
}
# These are one file, and have no names of their own, but those of their source.
FILES = {"hdf5": "there.h5", "torch_save": "there.pt"}
NAMED = [form for form in FORMS if form not in FILES]
MODELS = ("hf/qwen3-tied-bf16", "hf/qwen3moe-norm-bf16")
EQUAL, WEIGHTS = "all", "weights"


class Refused(Exception):
    pass


class Tools:
    def __init__(self, folder):
        self.folder = folder

    def run(self, tool, *arguments):
        done = subprocess.run([self.folder / tool, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=300)
        document = json.loads(done.stdout)
        if done.returncode != 0:
            raise Refused(document["errors"][0]["message"])
        return document

    def train(self, model, folder):
        """The checkpoint of a run of two steps that began with the model."""
        draw = random.Random(5)
        documents = [[draw.randrange(100) for _ in range(60)] for _ in range(8)]
        (folder / "tokens.jsonl").write_text("".join(json.dumps({"input_ids": d}) + "\n" for d in documents))
        settings = {"seq_length": 16, "global_batch_size": 4, "micro_batch_size": 1, "lr": 0.001, "train_iters": 2,
                    "data_path": folder / "tokens.jsonl", "save": folder / "run"}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        subprocess.run([self.folder / "ckpt-train", "train", "--init", f"hf:{model}", *words], check=True, capture_output=True)
        return folder / "run" / "iter_0000002"

    def convert(self, source, target, options):
        return self.run("ckpt-convert", "convert", *options, source, target)

    def tensors(self, path):
        """Key -> dtype, shape and digest."""
        digests = self.run("ckpt-inspect", "digest", "--algorithm", "sha256", path)["tensors"]
        listed = self.run("ckpt-inspect", "tensors", path)["tensors"]
        return {t["key"]: (t["dtype"], tuple(t["shape"]), digests[t["key"]]) for t in listed}


def there_and_back(tools, model, made, first, second, folder):
    """(what came back, what the second form left out, as why -> entries)."""
    target = folder / FILES.get(second, "there")
    back = folder / "back"
    try:
        report = tools.convert(made[first], target, FORMS[second])
        # One file holds no config.json.
        assets = ("--hf-assets", model) if second in FILES else ()
        again = tools.convert(target, back, (*FORMS[first], *assets))
    except Refused as refusal:
        return f"no: {refusal}", {}
    before, after = tools.tensors(made[first]), tools.tensors(back)
    changed = [key for key in after if key in before and after[key] != before[key]]
    assert not changed, f"{first} -> {second} -> {first}: other values: {changed[:5]}"
    assert set(after) <= set(before), f"{first} -> {second} -> {first}: new keys {sorted(set(after) - set(before))[:5]}"
    assert report["digest"]["source"] == report["digest"]["target"] and again["digest"]["source"] == again["digest"]["target"]
    left_out = collections.Counter(entry["why"] for entry in report["dropped"])
    return EQUAL if set(after) == set(before) else WEIGHTS, left_out


def measure(tools, model, source, scratch):
    """{(A, B): (what came back, what B left out)}"""
    made = {}
    for number, form in enumerate(NAMED):
        made[form] = scratch / f"form{number}"
        tools.convert(source, made[form], FORMS[form])
    pairs = [(a, b) for a in NAMED for b in FORMS if a != b]

    def one(pair):
        folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        return pair, there_and_back(tools, model, made, *pair, folder)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(pool.map(one, pairs))


def table(cells):
    lines = ["| from \\ to | " + " | ".join(f"`{form}`" for form in FORMS) + " |", "|---" * (len(FORMS) + 1) + "|"]
    for a in NAMED:
        row = ["" if a == b else cells[a, b][0] for b in FORMS]
        lines.append(f"| `{a}` | " + " | ".join(row) + " |")
    return lines


def left_out_lines(cells):
    """Of every form: what it leaves out of some other one."""
    lines = []
    for b in FORMS:
        whys = sorted({why for a in NAMED if a != b for why in cells[a, b][1]})
        if whys:
            lines.append(f"- `{b}` leaves out: {'; '.join(whys)}.")
    return lines


def page_lines(measured):
    lines = [BEGIN, ""]
    for subject, of_sources in measured.items():
        lines += [f"## {subject}", "", f"Measured on {', '.join(of_sources)}.", ""]
        cells = {}
        for of_source in of_sources.values():
            for pair, (came_back, left_out) in of_source.items():
                known = cells.setdefault(pair, (came_back, collections.Counter()))
                worst = known[0] if known[0] != EQUAL else came_back
                cells[pair] = (worst, known[1] | left_out)
        lines += table(cells) + [""]
        if left := left_out_lines(cells):
            lines += left + [""]
    return lines + [END]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    tools = Tools(arguments.bin.resolve())
    measured = {"A model": {}, "A training run": {}}
    for name in MODELS:
        model = GOLDENS / name / "ckpt"
        with tempfile.TemporaryDirectory() as scratch:
            measured["A model"][name] = measure(tools, model, model, pathlib.Path(scratch))
        with tempfile.TemporaryDirectory() as scratch:
            run = tools.train(model, pathlib.Path(scratch))
            measured["A training run"][f"two steps of {name}"] = measure(tools, model, run, pathlib.Path(scratch))
    text = PAGE.read_text()
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    page = text[:begin] + "\n".join(page_lines(measured)) + text[end:]
    if arguments.update:
        PAGE.write_text(page)
    elif page != text:
        raise SystemExit(f"{PAGE} is not what was measured; matrix_test.py --bin DIR --update writes it")


if __name__ == "__main__":
    main()
