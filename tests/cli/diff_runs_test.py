#!/usr/bin/env python3
"""One training run in every form: `ckpt-inspect diff` finds one flipped bit, and names tensor and index.

    diff_runs_test.py --bin DIR

A bit of a moment or of a main weight is flipped in the stored file of a form that holds what an optimizer keeps, or in what an HDF5 file is made from,
and is found from every other such form. Where diff must find it under another form's names is what the conversion of the damaged checkpoint says,
compared as stored. And in each form of the matrix, it is found from the same form of the run as it was.
"""
import argparse
import collections
import concurrent.futures
import io
import json
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import zipfile
import zlib

import matrix_test

MODELS = ("hf/qwen3-tied-bf16", "hf/qwen3moe-norm-bf16")
# For each naming of runs: the form that other forms of it are like, and where its exact weights are.
NATIVE = {"fsdp_dtensor": "model.module.", "torch_dist": "optimizer.state.param.",
          "torch_dist, 0.19": "optimizer.state.param.", "dcp, fsdp2": "model."}
LIKE = {"hdf5, of fsdp_dtensor": "fsdp_dtensor", "torch_save, of fsdp_dtensor": "fsdp_dtensor",
        "hdf5, of torch_dist": "torch_dist", "torch_save, of torch_dist": "torch_dist"}
FORMS = {form.name: form for form in matrix_test.FORMS}
NUM_MOMENTS, NUM_WEIGHTS = 2, 1
ITEM_BYTES = 4  # all state is float32


class Tools(matrix_test.Tools):
    def inspect(self, *arguments):
        """(exit code, document)"""
        done = subprocess.run([self.folder / "ckpt-inspect", *map(str, arguments), "--json"], capture_output=True, text=True, timeout=300)
        return done.returncode, json.loads(done.stdout)

    def flip(self, path, key, index, bit):
        """Flips a bit of an element where the checkpoint stores it, and makes the checksum of a zip right again."""
        _, shards = self.inspect("shards", path, "--match", key)
        for chunk in shards["chunks"]:
            inside = [i - o for i, o in zip(index, chunk["offsets"])]
            if chunk["key"] == key and all(0 <= i < size for i, size in zip(inside, chunk["sizes"])):
                break
        else:
            raise AssertionError(f"{path} does not store {key} {index}")
        linear = 0
        for i, size in zip(inside, chunk["sizes"]):
            linear = linear * size + i
        root = path if path.is_dir() else path.parent
        file, = [f for f in (root / chunk["file"], *root.glob(f"*/{chunk['file']}")) if f.is_file()]
        content = bytearray(file.read_bytes())
        begin, end = chunk["offset"], chunk["offset"] + chunk["length"]
        if file.suffix == ".distcp":  # the item is a whole file of torch.save
            item, = [e for e in entries_of(content[begin:end]) if e.name.endswith("/data/0")]
            flip_in_zip(content, begin, end, item, begin + item.begin + linear * ITEM_BYTES, bit)
        elif file.suffix == ".pt":
            item, = [e for e in entries_of(content) if e.begin <= begin < e.end]
            flip_in_zip(content, 0, len(content), item, begin + linear * ITEM_BYTES, bit)
        else:
            content[begin + linear * ITEM_BYTES + bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)


Entry = collections.namedtuple("Entry", "name begin end crc")


def entries_of(archive):
    """What a zip holds, stored, and where."""
    entries = []
    for info in zipfile.ZipFile(io.BytesIO(archive)).infolist():
        name_bytes, extra_bytes = struct.unpack_from("<HH", archive, info.header_offset + 26)
        begin = info.header_offset + 30 + name_bytes + extra_bytes
        entries.append(Entry(info.filename, begin, begin + info.file_size, info.CRC))
    return entries


def flip_in_zip(content, begin, end, entry, offset, bit):
    """`entry` lies in the zip content[begin:end], which says its CRC-32 in several places."""
    content[offset + bit // 8] ^= 1 << bit % 8
    crc = zlib.crc32(content[begin + entry.begin:begin + entry.end])
    archive = content[begin:end].replace(struct.pack("<I", entry.crc), struct.pack("<I", crc))
    content[begin:end] = archive


def copied(path, folder):
    """A copy of a checkpoint without its manifest, so that a flipped bit is no damage but another value."""
    target = folder / path.name
    if path.is_dir():
        shutil.copytree(path, target)
        for manifest in target.rglob("ckptkit.json"):
            manifest.unlink()
    else:
        shutil.copy(path, target)
    return target


def draw_elements(tools, path, naming, draw):
    """[(key, index)] of moments and of main weights."""
    _, listed = tools.inspect("tensors", path)
    shapes = {t["key"]: t["shape"] for t in listed["tensors"] if t["shape"] and t["dtype"] == "float32"}
    moments = sorted(key for key in shapes if "exp_avg" in key)
    weights = sorted(key for key in shapes if key.startswith(NATIVE[naming]) and "exp_avg" not in key)
    keys = draw.sample(moments, NUM_MOMENTS) + draw.sample(weights, NUM_WEIGHTS)
    return [(key, [draw.randrange(size) for size in shapes[key]]) for key in keys]


def found_in(document):
    return sorted((entry["key"], entry["first_index"]) for entry in document["different"])


# What a run of three steps, of twice the learning rate and with another decay, says otherwise than one of two.
OTHER_RUN = {"train_iters": 3, "lr": 0.002, "weight_decay": 0.2}
OTHER_SETTINGS = {
    "consumed_train_samples": (8, 12), "iteration": (2, 3), "step": (2, 3), "opt_param_scheduler.end_wd": (0.01, 0.2),
    "opt_param_scheduler.lr_decay_steps": (8, 12), "opt_param_scheduler.max_lr": (0.001, 0.002), "opt_param_scheduler.num_steps": (8, 12),
    "opt_param_scheduler.start_wd": (0.01, 0.2), "opt_param_scheduler.wd_incr_steps": (8, 12), "param_groups.lr": (0.001, 0.002),
    "param_groups.max_lr": (0.001, 0.002), "param_groups.weight_decay": (0.01, 0.2)}


def check_settings(tools, model, made, scratch):
    """Settings that differ are named under every pair of namings."""
    run = tools.train(model, scratch, save=scratch / "other", **OTHER_RUN)
    for b in NATIVE:
        other, _ = tools.convert(FORMS[b], run, pathlib.Path(tempfile.mkdtemp(dir=scratch)), model)
        for a in NATIVE:
            if a == b:
                continue
            code, document = tools.inspect("diff", made[a], other)
            different = {s["name"]: (s["a"], s["b"]) for s in document["settings"]["different"]}
            assert (code, different) == (1, OTHER_SETTINGS), f"{model}: {a} against {b}: {different}"
            assert not document["settings"]["only_a"] and not document["settings"]["only_b"], document["settings"]
            assert OTHER_SETTINGS.keys() <= set(document["settings"]["compared"])


def check_each_form(tools, model, run, scratch, draw):
    """One flipped bit of a run: in each form that is made of it, one element is another, and it is where diff says."""
    intact, _ = tools.convert(FORMS["fsdp_dtensor"], run, pathlib.Path(tempfile.mkdtemp(dir=scratch)), model)
    drawn = draw_elements(tools, intact, "fsdp_dtensor", draw)
    flips = [(drawn[0], 14), (drawn[-1], 20)]  # of a moment and of a weight: bits that bfloat16 does not keep, and keeps

    def damage(flip):
        (key, index), bit = flip
        damaged = copied(intact, pathlib.Path(tempfile.mkdtemp(dir=scratch)))
        tools.flip(damaged, key, index, bit)
        return damaged

    def check_form(form):
        def made(source):
            return tools.convert(form, source, pathlib.Path(tempfile.mkdtemp(dir=scratch)), model)[0]

        def value_at(path, place):
            return tools.inspect("show", path, place["key"], "--slice", ",".join(map(str, place["index"])))[1]["values"]

        whole = made(intact)
        for ((key, _), bit), source in zip(flips, damaged):
            flipped = made(source)
            code, document = tools.inspect("diff", whole, flipped)
            where = f"{model}: {form.name}, {key}"
            is_held = "exp_avg" not in key or tools.holds(whole, "exp_avg")
            assert (code, bool(document["different"])) == (is_held, is_held), f"{where}: {document}"
            for entry in document["different"]:
                assert entry["differing"] == 1 and int(entry["bits_a"], 16) ^ int(entry["bits_b"], 16) == 1 << bit, f"{where}: {entry}"
                read = [value_at(path, entry[place]) for path, place in ((whole, "stored_a"), (flipped, "stored_b"))]
                assert read == [entry["a"], entry["b"]], f"{where}: {entry}"

    damaged = [damage(flip) for flip in flips]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(check_form, FORMS.values()))


def check(tools, model, scratch):
    run = tools.train(model, scratch)
    made = {name: tools.convert(FORMS[name], run, pathlib.Path(tempfile.mkdtemp(dir=scratch)), model)[0] for name in (*NATIVE, *LIKE)}

    def expected(naming, damaged, folder):
        """{naming: what differs under its names}"""
        places = {}
        for other in NATIVE:
            if other == naming:
                compared = damaged
            else:
                compared, _ = tools.convert(FORMS[other], damaged, pathlib.Path(tempfile.mkdtemp(dir=folder)), model)
            code, document = tools.inspect("diff", made[other], compared)
            assert (code, document["compared"]) == (1, "as stored"), f"{naming} as {other}: {document}"
            places[other] = found_in(document)
        return places

    def check_flip(task):
        naming, (key, index), bit = task
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            folder = pathlib.Path(folder)
            for damaged_form in [naming, *(form for form, like in LIKE.items() if like == naming)]:
                own = pathlib.Path(tempfile.mkdtemp(dir=folder))
                if made[damaged_form].suffix == ".h5":  # has a checksum of the elements, and one of what says it
                    damaged, _ = tools.convert(FORMS[damaged_form], damaged_source, own, model)
                else:
                    damaged = copied(made[damaged_form], own)
                    tools.flip(damaged, key, index, bit)
                if damaged_form == naming:
                    damaged_source = damaged
                    places = expected(naming, damaged, folder)
                for form, whole in made.items():
                    if not can_compare(form, damaged_form):
                        continue
                    where = f"{model}: {form} against {damaged_form}, {key} {index}"
                    code, document = tools.inspect("diff", whole, damaged)
                    assert code == 1 and not document["equal"], f"{where}: found nothing"
                    assert not document["only_a"] and not document["only_b"], f"{where}: {document['only_a']}, {document['only_b']}"
                    assert found_in(document) == places[LIKE.get(form, form)], f"{where}: {document['different']}"
                    for entry in document["different"]:
                        assert entry["differing"] == 1, f"{where}: {entry}"
                        assert entry["stored_b"] | {"key": key, "index": index} == entry["stored_b"], f"{where}: {entry}"
                        assert entry["stored_a"] | {"key": entry["key"], "index": entry["first_index"]} == entry["stored_a"], f"{where}: {entry}"
        return len(made)

    def can_compare(a, b):
        """Neither of two files of tensors alone says what model it holds: with other names they are compared as stored."""
        return a == b or not (a.startswith("torch_save") and b.startswith("torch_save"))

    for a, whole_a in made.items():
        for b, whole_b in made.items():
            if not can_compare(a, b):
                continue
            code, document = tools.inspect("diff", whole_a, whole_b)
            assert code == 0 and not document["problems"], f"{model}: {a} against {b}: {document}"
            # What one side keeps apart is a pair of its own: nothing of either optimizer is left out.
            left = [entry["key"] for side in "ab" for entry in document[f"left_out_{side}"]]
            assert not [key for key in left if "exp_avg" in key or ".param." in key], f"{model}: {a} against {b}: {left}"

    check_settings(tools, model, made, scratch)
    draw = random.Random(7)
    check_each_form(tools, model, run, scratch, draw)
    tasks = [(naming, element, draw.randrange(8 * ITEM_BYTES))
             for naming in NATIVE for element in draw_elements(tools, made[naming], naming, draw)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(check_flip, tasks))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    tools = Tools(parser.parse_args().bin.resolve())
    for name in MODELS:
        with tempfile.TemporaryDirectory(dir=matrix_test.MEMORY) as scratch:
            check(tools, matrix_test.GOLDENS / name / "ckpt", pathlib.Path(scratch))


if __name__ == "__main__":
    main()
