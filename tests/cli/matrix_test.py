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

# The names that tensors can have, with the options that choose them.
NAMINGS = {
    "hf": ("--naming", "hf", "--expert-layout", "published"),
    "fsdp_dtensor": ("--naming", "fsdp_dtensor"),
    "torch_dist": ("--naming", "torch_dist", "--layer-keys", "stacked"),
    "fsdp2": ("--naming", "fsdp2", "--expert-layout", "fused"),
}


# Forms of a run's optimizer, which weights alone do not have: the naming, and the options that choose them.
OPTIMIZER_FORMS = {
    "fully_sharded_model_space": ("torch_dist", ("--optimizer-form", "fully_sharded_model_space")),
    "dp_reshardable": ("torch_dist", ("--optimizer-form", "dp_reshardable")),
    "flattened": ("fsdp2", ("--optimizer-state-dict", "flattened")),
}


class Form:
    """A container and the names in it. `steps` are the conversions that make it of any other form, one after the other: a verb of
    ckpt-convert and options. `of_runs` are more options for the last one, if there is an optimizer. `is_stored` is a form that another one
    with the same names is stored in otherwise."""

    def __init__(self, container, variant, *steps, of_runs=(), is_stored=False):
        self.container, self.variant, self.steps, self.of_runs, self.is_stored = container, variant, steps, of_runs, is_stored
        self.name = f"{container}, {variant}" if variant else container


def to(container, *options):
    return ("convert", "--to", container, *options)


def named(container, *namings):
    return [Form(container, naming, to(container, *NAMINGS[naming])) for naming in namings]


def of_runs(container, *forms):
    """The container with these forms of the optimizer."""
    made = []
    for form in forms:
        naming, options = OPTIMIZER_FORMS[form]
        variant = form if naming == container else f"{naming} {form}"
        made.append(Form(container, variant, to(container, *NAMINGS[naming]), of_runs=options))
    return made


def stored(form, *options, verb=None):
    """The form, stored otherwise."""
    *before, (usual_verb, *usual) = form.steps
    last = (verb, *options) if verb else (usual_verb, *usual, *options)
    return Form(form.container, " ".join(options).removeprefix("--"), *before, last, is_stored=True)


TO_RUN = {"fsdp_dtensor": to("fsdp_dtensor"), "torch_dist": to("torch_dist", "--layer-keys", "stacked")}
NAMED = [
    Form("hf", "", to("hf", "--expert-layout", "published")),
    Form("fsdp_dtensor", "", TO_RUN["fsdp_dtensor"]),
    Form("torch_dist", "", TO_RUN["torch_dist"]),
    Form("torch_dist", "0.19", to("torch_dist", "--torch-dist-generation", "0.19", "--layer-keys", "per_layer")),
    Form("torch_dist", "megatron-bridge", to("torch_dist", "--tree", "megatron-bridge", "--layer-keys", "stacked")),
    *of_runs("torch_dist", "fully_sharded_model_space", "dp_reshardable"),
    *named("dcp", "fsdp2", "hf"),
    *of_runs("dcp", "flattened"),
    *named("safetensors", "fsdp_dtensor", "torch_dist", "fsdp2"),
    # Without --naming, a file has the names of its source, and all of a run.
    *[Form("hdf5", f"of {run}", step, to("hdf5")) for run, step in TO_RUN.items()],
    *named("hdf5", *NAMINGS),
    *of_runs("hdf5", "fully_sharded_model_space", "flattened"),
    *[Form("torch_save", f"of {run}", step, to("torch_save")) for run, step in TO_RUN.items()],
    *named("torch_save", *NAMINGS),
    *of_runs("torch_save", "fully_sharded_model_space", "flattened"),
]
CONTAINERS = list(dict.fromkeys(form.container for form in NAMED))
# The first form of each container, which stands for it where how something is stored is tried.
USUAL = {container: next(form for form in NAMED if form.container == container) for container in CONTAINERS}
STORED = [
    stored(USUAL["hf"], "--files", "3"),
    *[stored(USUAL[container], "--compress", "zstd") for container in ("fsdp_dtensor", "torch_dist", "dcp", "hdf5")],
    stored(USUAL["hdf5"], "--files", "3"),
    stored(USUAL["hdf5"], "--link", verb="to-hdf5"),
]
FORMS = NAMED + STORED
SUFFIXES = {"hdf5": ".h5", "torch_save": ".pt"}  # of those that are one file
MODELS = ("hf/qwen3-tied-bf16", "hf/qwen3moe-norm-bf16")
EQUAL, WEIGHTS = "all", "weights"
MODEL, RUN = "A model", "A training run"
# Where there is memory to write to, nothing waits for a disk.
MEMORY = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None


class Refused(Exception):
    pass


class Tools:
    def __init__(self, folder):
        self.folder = folder
        self.known = {}  # (command, path) -> what it said

    def run(self, tool, *arguments):
        done = subprocess.run([self.folder / tool, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=300)
        document = json.loads(done.stdout)
        if done.returncode != 0:
            raise Refused(document["errors"][0]["message"])
        return document

    def train(self, model, folder, **others):
        """The checkpoint of a run of two steps that began with the model; `others` are settings of another run."""
        draw = random.Random(5)
        documents = [[draw.randrange(100) for _ in range(60)] for _ in range(8)]
        (folder / "tokens.jsonl").write_text("".join(json.dumps({"input_ids": d}) + "\n" for d in documents))
        settings = {"seq_length": 16, "global_batch_size": 4, "micro_batch_size": 1, "lr": 0.001, "train_iters": 2,
                    "data_path": folder / "tokens.jsonl", "save": folder / "run", **others}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        subprocess.run([self.folder / "ckpt-train", "train", "--init", f"hf:{model}", *words], check=True, capture_output=True)
        return settings["save"] / f"iter_{settings['train_iters']:07}"

    def convert(self, form, source, folder, model):
        """(where the form is, the report of the last conversion)."""
        for number, (verb, *options) in enumerate(form.steps):
            last = number + 1 == len(form.steps)
            target = folder / (f"{number}" + (SUFFIXES.get(form.container, "") if last else ""))
            # A file holds no config.json.
            assets = ("--hf-assets", model) if source.suffix in SUFFIXES.values() else ()
            of_runs = form.of_runs if last and form.of_runs and self.holds(source, "exp_avg") else ()
            report = self.run("ckpt-convert", verb, *options, *of_runs, *assets, source, target)
            assert report["digest"]["source"] == report["digest"]["target"], f"{source} as {form.name}"
            source = target
        return source, report

    def check_counts(self, report):
        """The report of a conversion counts what ckpt-inspect counts."""
        for said in (report["source"], report["target"]):
            summary = self.about("summary", said["path"])
            counted = [(figures["tensors"], figures["bytes"]) for figures in (said, summary)]
            # A source's buffers are read as the parameters that lie in them.
            has_buffers = counted[0] != counted[1] and said is report["source"] and self.holds(said["path"], ".bucket_idx_")
            assert counted[0] == counted[1] or has_buffers, f"{said['path']}: {counted}"

    def about(self, command, path):
        """What ckpt-inspect says of a checkpoint, asked once."""
        key = command, str(path)
        if key not in self.known:
            self.known[key] = self.run("ckpt-inspect", command, path)
        return self.known[key]

    def holds(self, path, part_of_key):
        return any(part_of_key in tensor["key"] for tensor in self.about("tensors", path)["tensors"])

    def digest(self, path):
        """Of the checkpoint: of keys, dtypes, shapes and values of all its tensors."""
        return self.about("digest", path)["checkpoint"]

    def tensors(self, path):
        """Key -> dtype, shape and digest."""
        digests = self.about("digest", path)["tensors"]
        listed = self.about("tensors", path)["tensors"]
        return {t["key"]: (t["dtype"], tuple(t["shape"]), digests[t["key"]]) for t in listed}


def forms_of(is_run, usual_only=False):
    return [form for form in FORMS if (is_run or not form.of_runs) and (not usual_only or form in USUAL.values())]


def is_tried(a, b):
    """Each form becomes each other; how something is stored is tried with the usual form of every container."""
    usual = USUAL.values()
    return a is not b and not (a.is_stored and b not in usual) and not (b.is_stored and a not in usual)


def measure(tools, model, source, scratch, forms):
    """{(A, B): (what came back, what B left out, as why -> entries)}"""

    def make(form):
        path, _ = tools.convert(form, source, pathlib.Path(tempfile.mkdtemp(dir=scratch)), model)
        return path

    def there_and_back(pair):
        first, second = pair
        path = made[first]
        with tempfile.TemporaryDirectory(dir=scratch) as there, tempfile.TemporaryDirectory(dir=scratch) as here:
            try:
                target, report = tools.convert(second, path, pathlib.Path(there), model)
                tools.check_counts(report)
                back, _ = tools.convert(first, target, pathlib.Path(here), model)
            except Refused as refusal:
                return f"no: {refusal}", collections.Counter()
            is_equal = tools.digest(back) == tools.digest(path)
            before, after = ({}, {}) if is_equal else (tools.tensors(path), tools.tensors(back))
        way = f"{first.name} -> {second.name} -> {first.name}"
        changed = [key for key in after if key in before and after[key] != before[key]]
        assert not changed, f"{way}: other values: {changed[:5]}"
        assert set(after) <= set(before), f"{way}: new keys {sorted(set(after) - set(before))[:5]}"
        left_out = collections.Counter(entry["why"] for entry in report["dropped"])
        return EQUAL if is_equal else WEIGHTS, left_out

    # More threads than cores, because conversions also wait for the disk.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = dict(zip(forms, pool.map(make, forms)))
        pairs = [(a, b) for a in forms for b in forms if is_tried(a, b)]
        return dict(zip(pairs, pool.map(there_and_back, pairs)))


def cell(outcomes):
    """Of {variant: what came back}: the usual outcome, and which variants have another one."""
    count = collections.Counter(outcomes.values())
    usual = max(count, key=lambda outcome: (count[outcome], outcome == EQUAL))
    others = collections.defaultdict(list)
    for variant, outcome in outcomes.items():
        if outcome != usual:
            others[outcome].append(f"`{variant}`" if variant else "usual form")
    return "; ".join([usual, *(f"{', '.join(variants)}: {outcome}" for outcome, variants in others.items())])


def table(cells, is_run):
    lines = ["| from \\ to | " + " | ".join(f"`{container}`" for container in CONTAINERS) + " |",
             "|---" * (len(CONTAINERS) + 1) + "|"]
    for a in forms_of(is_run):
        row = [{b.variant: cells[a, b][0] for b in forms_of(is_run) if b.container == container and is_tried(a, b)}
               for container in CONTAINERS]
        lines.append(f"| `{a.name}` | " + " | ".join(cell(outcomes) if outcomes else "" for outcomes in row) + " |")
    return lines


def left_out_lines(cells):
    """Of every container: what it leaves out of some other form."""
    lines = []
    for container in CONTAINERS:
        whys = sorted({why for (_, b), (_, left_out) in cells.items() if b.container == container for why in left_out})
        if whys:
            lines.append(f"- `{container}` leaves out: {'; '.join(whys)}.")
    return lines


def page_lines(measured):
    forms = "; ".join(f"`{container}` ({', '.join(f'`{f.variant}`' for f in FORMS if f.container == container and f.variant)})"
                      for container in CONTAINERS if any(f.container == container and f.variant for f in FORMS))
    lines = [BEGIN, "", f"Forms: {forms}.", ""]
    for subject, of_sources in measured.items():
        lines += [f"## {subject}", "", f"Measured on {', '.join(of_sources)}.", ""]
        cells = {}
        for of_source in of_sources.values():
            for pair, (came_back, left_out) in of_source.items():
                known = cells.setdefault(pair, (came_back, collections.Counter()))
                worst = known[0] if known[0] != EQUAL else came_back
                cells[pair] = (worst, known[1] | left_out)
        lines += table(cells, subject == RUN) + [""]
        if left := left_out_lines(cells):
            lines += left + [""]
    return lines + [END]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    tools = Tools(arguments.bin.resolve())
    measured = {MODEL: {}, RUN: {}}
    for name in MODELS:
        model = GOLDENS / name / "ckpt"
        with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
            measured[MODEL][name] = measure(tools, model, model, pathlib.Path(scratch), forms_of(is_run=False))
        with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
            run = tools.train(model, pathlib.Path(scratch))
            only_usual = name != MODELS[-1]
            title = f"two steps of {name}" + (" (usual forms)" if only_usual else "")
            measured[RUN][title] = measure(tools, model, run, pathlib.Path(scratch), forms_of(True, only_usual))
    text = PAGE.read_text()
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    page = text[:begin] + "\n".join(page_lines(measured)) + text[end:]
    if arguments.update:
        PAGE.write_text(page)
    elif page != text:
        raise SystemExit(f"{PAGE} is not what was measured; matrix_test.py --bin DIR --update writes it")


if __name__ == "__main__":
    main()
