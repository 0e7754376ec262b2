"""Names that leave the folder, links, loops, and things that are not what their name says."""
import json
import os

import dcp_bytes as d
import pickle_bytes as p
import safetensors_bytes as s
import zip_bytes as z
from corpus_case import Group, HARMLESS, Outcome, damaged, error, lost_file, refused, warned, warning

group = Group("paths")
CASES = group.cases
ZEROS = b"\0" * 16
GOOD = s.file({"w": s.entry()}, ZEROS)
INDEX = "model.safetensors.index.json"

# --- Paths inside .metadata.

UNSAFE = {
    "parent": ("../x.distcp", "path leaves the checkpoint's directory"),
    "parent-far": ("../../../../../../etc/passwd", "path leaves the checkpoint's directory"),
    "parent-hidden": ("a/../../x", "path leaves the checkpoint's directory"),
    "parent-inside": ("a/../__0_0.distcp", "path leaves the checkpoint's directory"),
    "parent-last": ("a/..", "path leaves the checkpoint's directory"),
    "absolute": ("/etc/passwd", "path is absolute"),
    "absolute-twice": ("//etc/passwd", "path is absolute"),
    "proc-self": ("/proc/self/mem", "path is absolute"),
    "nul": ("__0_0.distcp\0.txt", "path contains a NUL character"),
    "empty": ("", "path is empty"),
    "dot": (".", "path names the directory itself"),
    "dots": ("././", "path names the directory itself"),
}
for name, (path, message) in UNSAFE.items():
    group.add(f"metadata-{name}", f"a data file named {path!r}",
              d.one_tensor(None, d.stored(0, len(d.item()), path)),
              damaged("unsafe_path", message, tensor="w", also=(error("coverage", "no chunk holds", tensor="w"),
                                                               warning("leftover", "a data file that no entry refers to"))))

MISSING = {
    "home": "~/x", "backslash": "..\\x", "drive": "C:\\x", "percent": "%2e%2e/x", "url": "file:///etc/passwd", "case": "__0_0.DISTCP",
    "space": "__0_0.distcp ", "fullwidth-dots": "\uff0e\uff0e/x", "stream": "__0_0.distcp:x", "newline": "__0_0.distcp\n",
}
for name, path in MISSING.items():
    group.add(f"metadata-{name}", f"a data file named {path!r}: no way out, and not there",
              d.one_tensor(None, d.stored(0, len(d.item()), path)),
              lost_file("", tensor="w", also=(warning("leftover", "a data file that no entry refers to"),)))
group.add("metadata-too-long", "a name of 5000 characters", d.one_tensor(None, d.stored(0, len(d.item()), "n" * 5000)),
          damaged("io", "", tensor="w", also=(warning("leftover", "a data file"),)))
group.add("metadata-path-too-long", "a path of 8000 characters", d.one_tensor(None, d.stored(0, len(d.item()), "n/" * 4000 + "x")),
          damaged("io", "", tensor="w", also=(warning("leftover", "a data file"),)))

# --- Paths inside an index of a Hugging Face repository.


def repository(file, *, also=None, index=None):
    def make(folder):
        (folder / "weights.safetensors").write_bytes(GOOD)
        text = json.dumps({"metadata": {}, "weight_map": {"w": file}}) if index is None else index
        (folder / INDEX).write_text(text)
        if also:
            also(folder)
        return folder
    return make


for name, (path, message) in UNSAFE.items():
    group.add(f"index-{name}", f"a shard named {path!r}", repository(path), refused("unsafe_path", message, tensor="w", file=INDEX))


# --- The folder itself.

def dcp_with(change):
    def make(folder):
        d.one_tensor()(folder)
        change(folder)
        return folder
    return make


DATA_GONE = "no such file"


def replace(name, make):
    def change(folder):
        (folder / name).unlink()
        make(folder / name)
    return change


group.add("data-is-folder", "the data file is a folder", dcp_with(replace(d.FILE, lambda f: f.mkdir())),
          damaged("io", "not a regular file", tensor="w"))
group.add("data-is-fifo", "the data file is a FIFO: opening it must not wait", dcp_with(replace(d.FILE, os.mkfifo)),
          damaged("io", "not a regular file", tensor="w"))
group.add("data-is-device", "the data file is a link to /dev/zero", dcp_with(replace(d.FILE, lambda f: f.symlink_to("/dev/zero"))),
          damaged("io", "not a regular file", tensor="w"))
group.add("data-link-loop", "the data file is a link to itself", dcp_with(replace(d.FILE, lambda f: f.symlink_to(d.FILE))),
          refused("io", ""))
group.add("data-link-dangling", "the data file is a link to nothing", dcp_with(replace(d.FILE, lambda f: f.symlink_to("nowhere"))),
          lost_file("", tensor="w"))
group.add("data-link-passwd", "the data file is a link to a file of the system", dcp_with(replace(d.FILE, lambda f: f.symlink_to("/etc/hostname"))),
          damaged("truncated", "the file is shorter than its entries", tensor="w"))
group.add("metadata-is-folder", ".metadata is a folder", dcp_with(replace(".metadata", lambda f: f.mkdir())), refused("io", "not a regular file"))
group.add("metadata-is-fifo", ".metadata is a FIFO", dcp_with(replace(".metadata", os.mkfifo)), refused("io", "not a regular file"))
group.add("metadata-is-zero", ".metadata is a link to /dev/zero", dcp_with(replace(".metadata", lambda f: f.symlink_to("/dev/zero"))), refused("io", "not a regular file"))
group.add("metadata-link-loop", ".metadata is a link to itself", dcp_with(replace(".metadata", lambda f: f.symlink_to(".metadata"))), refused("io", ""))
group.add("folder-link-loop", "a link to the folder itself", dcp_with(lambda f: (f / "self").symlink_to(".")), HARMLESS)
group.add("name-not-utf8", "a file whose name is not UTF-8", dcp_with(lambda f: open(os.fsencode(f) + b"/\xff\x1b[2J.distcp", "wb").write(b"x")),
          warned("leftover", "a data file that no entry refers to"))
group.add("case-clash", "a second data file whose name differs in case", dcp_with(lambda f: (f / "__0_0.DISTCP").write_bytes(b"x")), HARMLESS)
group.add("file-is-folder", "a folder named like a file", lambda f: ((f / "model.safetensors").mkdir(), f / "model.safetensors")[1],
          refused("unsupported", ""))
group.add("file-is-fifo", "a FIFO named like a file", lambda f: (os.mkfifo(f / "model.pt"), f / "model.pt")[1], refused("io", "neither a regular file nor a directory"))
group.add("file-link-loop", "a link to itself", lambda f: ((f / "model.pt").symlink_to("model.pt"), f / "model.pt")[1], refused("io", ""))
group.add("file-missing", "a path that is not there", lambda f: f / "model.pt", refused("not_found", "no such file or directory"))
group.add("empty-folder", "a folder without files", lambda f: f, refused("unsupported", ""))
group.add("shard-is-folder", "the shard of an index is a folder", repository("model-1.safetensors", also=lambda f: (f / "model-1.safetensors").mkdir()),
          lost_file("the file that holds the tensor is missing", tensor="w", also=(warning("leftover", "", file="weights.safetensors"),)))
group.add("shard-is-fifo", "the shard of an index is a FIFO", repository("model-1.safetensors", also=lambda f: os.mkfifo(f / "model-1.safetensors")),
          lost_file("the file that holds the tensor is missing", tensor="w", also=(warning("leftover", "", file="weights.safetensors"),)))
group.add("shard-missing", "the shard of an index is not there", repository("model-1.safetensors"),
          lost_file("the file that holds the tensor is missing", tensor="w", also=(warning("leftover", "", file="weights.safetensors"),)))
group.add("shard-case", "a shard whose name differs in case", repository("MODEL.safetensors"),
          lost_file("the file that holds the tensor is missing", tensor="w", also=(warning("leftover", "", file="weights.safetensors"),)))
group.add("shard-is-index", "the index names itself as a shard", repository(INDEX), refused("resource", "header is larger than the format allows"))

# --- Megatron's tracker.


def root(text, make=None):
    def write(folder):
        (folder / "latest_checkpointed_iteration.txt").write_bytes(text)
        (folder / "iter_0000007").mkdir()
        d.one_tensor()(folder / "iter_0000007")
        return folder
    return write


group.add("tracker-parent", "the tracker says ../x", root(b"../x"), refused("bad_metadata", "the tracker does not name an iteration"))
group.add("tracker-absolute", "the tracker says /etc", root(b"/etc"), refused("bad_metadata", "the tracker does not name an iteration"))
group.add("tracker-negative", "the tracker says -7", root(b"-7"), refused("bad_metadata", "the tracker does not name an iteration"))
group.add("tracker-overflow", "the tracker says 2^64+7", root(b"18446744073709551623"), refused("bad_metadata", "the tracker does not name an iteration"))
group.add("tracker-nul", "the tracker holds a NUL", root(b"7\0"), refused("bad_metadata", "the tracker does not name an iteration"))
group.add("tracker-gone", "the tracker names an iteration that is not there", root(b"8"), refused("not_found", "names a directory that is not there"))
group.add("tracker-large", "a tracker of a megabyte", root(b"7" * (1 << 20)), refused("resource", ""))
group.add("tracker-empty", "an empty tracker", root(b""), refused("bad_metadata", "the tracker does not name an iteration"))
group.add("tracker-honest", "an honest tracker", root(b"7\n"), HARMLESS)
