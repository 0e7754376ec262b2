"""Repositories of `pytorch_model.bin` files: an index that lies, names that leave the folder, files that do not fit it."""
import json
import os

import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, HARMLESS, Outcome, damaged, error, refused, warned, warning
from path_cases import UNSAFE

group = Group("torch_bin")
CASES = group.cases

INDEX, SINGLE = "pytorch_model.bin.index.json", "pytorch_model.bin"
FIRST, SECOND = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"
SYSTEM = p.Call(p.G("os", "system"), ("touch ckptkit-was-executed",))


def weights(value=None, **fields):
    """A file of torch.save; usually with one tensor `w`."""
    return z.torch_file(p.dumps({"w": p.tensor((2, 2))} if value is None else value), {"0": b"\0" * 16}, **fields)


def repository(weight_map=None, files=None, index=None, change=None):
    """Two files of a tensor each. `weight_map` is what the index says; `files`: name -> bytes, or None for no file."""
    def make(folder):
        held = {FIRST: weights({"v": p.tensor((2, 2))}), SECOND: weights()} | (files or {})
        for name, data in held.items():
            if data is not None:
                (folder / name).write_bytes(data)
        said = {"v": FIRST, "w": SECOND} if weight_map is None else weight_map
        text = json.dumps({"metadata": {"total_size": 32}, "weight_map": said}) if index is None else index
        (folder / INDEX).write_bytes(text if isinstance(text, bytes) else text.encode())
        if change:
            change(folder)
        return folder
    return make


def text_index(attack, name, text, kind, message, **more):
    group.add(name, attack, repository(index=text), refused(kind, message, file=INDEX, **more))


group.add("whole", "no attack: the repository that the others change", repository(), HARMLESS)
group.add("single", "no attack: one file without an index", repository(change=lambda f: ((f / INDEX).unlink(), (f / SECOND).rename(f / SINGLE))), HARMLESS)
group.add("single-first", "a single file before an index of files that are not there",
          repository(files={SINGLE: weights()}, weight_map={"w": "gone.bin"}), HARMLESS)

# --- The index.

for name, (path, message) in UNSAFE.items():
    group.add(f"path-{name}", f"a file named {path!r}", repository({"v": FIRST, "w": path}), refused("unsafe_path", message, tensor="w", file=INDEX))
text_index("no weight_map", "map-absent", "{}", "bad_metadata", "no weight_map")
text_index("two weight_maps", "map-twice", '{"weight_map": {"w": "%s"}, "weight_map": {"w": "%s"}}' % (FIRST, SECOND), "bad_metadata", "twice")
text_index("a weight_map that is a list", "map-list", '{"weight_map": ["w"]}', "bad_metadata", "")
text_index("a file that is a number", "file-number", '{"weight_map": {"w": 7}}', "bad_metadata", "")
text_index("a file that is a list", "file-list", '{"weight_map": {"w": ["%s"]}}' % FIRST, "bad_metadata", "")
text_index("a tensor listed twice", "key-twice", '{"weight_map": {"w": "%s", "w": "%s"}}' % (FIRST, SECOND), "bad_metadata", "twice")
text_index("no text at all", "empty", b"", "bad_metadata", "")
text_index("an index that is cut off", "cut", '{"weight_map": {"w": "pyt', "bad_metadata", "")
text_index("an index with more behind it", "trailing", '{"weight_map": {}} {}', "bad_metadata", "")
text_index("bytes that are no UTF-8", "utf8", b'{"weight_map": {"w": "\xff"}}', "bad_metadata", "")
text_index("arrays in arrays, a hundred thousand deep", "deep", '{"metadata": ' + "[" * 100000 + "]" * 100000 + ', "weight_map": {}}', "resource", "")
text_index("an index that is a pickle", "pickle", p.dumps({"weight_map": SYSTEM}), "bad_metadata", "")
group.add("map-empty", "a weight_map of nothing", repository({}), Outcome(0, 0, 3, has_tensors=False))
group.add("total-negative", "a size below zero", repository(index=json.dumps({"metadata": {"total_size": -1}, "weight_map": {"v": FIRST, "w": SECOND}})), HARMLESS)
group.add("total-huge", "a size past 64 bits", repository(index=json.dumps({"metadata": {"total_size": 1 << 80}, "weight_map": {"v": FIRST, "w": SECOND}})), HARMLESS)
group.add("index-folder", "an index that is a folder", repository(change=lambda f: ((f / INDEX).unlink(), (f / INDEX).mkdir())), refused("io", ""))
group.add("index-fifo", "an index that is a FIFO", repository(change=lambda f: ((f / INDEX).unlink(), os.mkfifo(f / INDEX))), refused("io", ""))
group.add("index-absent", "files without their index", repository(change=lambda f: (f / INDEX).unlink()), refused("incomplete", "without the index"))

# --- The files.

CALLED = "calls os.system"


def lacks(tensor, file, also=()):
    return damaged("missing", "a tensor that its file lacks", tensor=tensor, file=file, also=also)


group.add("file-missing", "a file that is not there", repository(files={SECOND: None}), Outcome(1, 1, 3, (error("missing_file", "", tensor="w", file=SECOND),)))
group.add("files-missing", "no file is there", repository(files={FIRST: None, SECOND: None}),
          Outcome(1, 1, 3, (error("missing_file", "", tensor="v", file=FIRST), error("missing_file", "", tensor="w", file=SECOND)), has_tensors=False))
group.add("file-folder", "a file that is a folder", repository(files={SECOND: None}, change=lambda f: (f / SECOND).mkdir()), Outcome(1, 1, 3, (error("missing_file", "", tensor="w", file=SECOND),)))
group.add("file-fifo", "a file that is a FIFO", repository(files={SECOND: None}, change=lambda f: os.mkfifo(f / SECOND)), Outcome(1, 1, 3, (error("missing_file", "", tensor="w", file=SECOND),)))
group.add("file-loop", "a file that is a link to itself", repository(files={SECOND: None}, change=lambda f: (f / SECOND).symlink_to(SECOND)), refused("io", ""))
group.add("file-garbage", "a file that is no torch.save file", repository(files={SECOND: b"\0" * 64}), refused("unsupported", "", file=SECOND))
group.add("file-empty", "a file of nothing", repository(files={SECOND: b""}), refused("truncated", "", file=SECOND))
group.add("file-index", "the index as a file of its own", repository({"v": FIRST, "w": INDEX}), refused("unsupported", "", file=INDEX))
group.add("file-crc", "a file whose checksum is wrong", repository(files={SECOND: z.archive([z.Entry(b"archive/data.pkl", p.dumps({"w": p.tensor((2, 2))}), crc=1)])}), refused("checksum", "", file=SECOND))
group.add("storage-crc", "elements whose checksum is wrong",
          repository(files={SECOND: z.archive([e if not e.name.endswith(b"/0") else z.Entry(e.name, e.data, crc=1) for e in z.torch_entries(p.dumps({"w": p.tensor((2, 2))}), {"0": b"\0" * 16})])}),
          damaged("checksum", "", tensor="w", file=SECOND))
group.add("tensor-absent", "a tensor that its file lacks", repository({"v": FIRST, "w": SECOND, "x": FIRST}), lacks("x", FIRST))
group.add("tensor-elsewhere", "a tensor that another file holds", repository({"v": FIRST, "w": FIRST}), lacks("w", FIRST))
group.add("tensor-unlisted", "a tensor that the index does not list", repository({"w": SECOND, "u": FIRST}, files={FIRST: weights({"u": p.tensor((2, 2)), "v": p.tensor((2, 2))})}),
          warned("leftover", "tensor is not in the index", tensor="v", file=FIRST))
group.add("tensor-twice", "a tensor in two files", repository(files={FIRST: weights({"v": p.tensor((2, 2)), "w": p.tensor((2, 2))})}), warned("leftover", "takes it from another file", tensor="w", file=FIRST))
group.add("tensor-unlisted-twice", "a tensor that the index does not list, in two files",
          repository(files={FIRST: weights({"v": p.tensor((2, 2)), "u": p.tensor((2, 2))}), SECOND: weights({"w": p.tensor((2, 2)), "u": p.tensor((2, 2))})}),
          warned("leftover", "", tensor="u", file=FIRST, also=(warning("leftover", "", tensor="u", file=SECOND),)))
group.add("tensor-call", "a tensor that is a call", repository(files={SECOND: weights({"w": SYSTEM})}), warned("unsafe_pickle", CALLED, tensor="w", file=SECOND))
group.add("root-call", "a file that is a call", repository(files={SECOND: weights(SYSTEM)}), lacks("w", SECOND, also=(warning("unsafe_pickle", CALLED, file=SECOND),)))
group.add("root-number", "a file that is a number", repository(files={SECOND: weights(7)}), lacks("w", SECOND))
group.add("past-storage", "a tensor past the end of its storage", repository(files={SECOND: weights({"w": p.tensor((2, 2), elements=4, offset=1)})}), damaged("size_mismatch", "", tensor="w"))
