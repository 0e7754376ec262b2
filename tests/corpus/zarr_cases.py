"""Folders of zarr arrays, as old Megatron-Core saved them: `.zarray`, names and sizes of chunks, the objects beside."""
import json

import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, HARMLESS, damaged, error, lost_file, not_understood, refused, warned

group = Group("zarr")
CASES = group.cases

GOOD = {"zarr_format": 2, "shape": [3, 3], "chunks": [2, 2], "dtype": "<f4", "compressor": None, "filters": None, "order": "C", "fill_value": 0.0}
CHUNKS = {name: b"\0" * 16 for name in ("0.0", "0.1", "1.0", "1.1")}


def folder_of(array=None, chunks=CHUNKS, **files):
    """A checkpoint with the array `w`. `array`: other members of its description, or the text of it; a chunk that is None is a folder."""
    def make(folder):
        text = array if isinstance(array, (bytes, str)) else json.dumps({k: v for k, v in (GOOD | (array or {})).items() if v != "absent"})
        content = {"metadata.json": '{"sharded_backend": "zarr"}', "w/.zarray": text} | {f"w/{k}": v for k, v in chunks.items()} | files.get("files", {})
        for name, data in content.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            if data is None:
                path.mkdir()
            elif data != "absent":
                path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
        return folder
    return make


def bad(kind, message, **more):
    return damaged(kind, message, tensor="w", **more)


group.add("whole", "no attack: the array that the others change", folder_of(), HARMLESS)

# --- The description.

TEXTS = {
    "empty": ("", "bad_metadata", ""), "list": ("[]", "bad_metadata", ""), "cut": ('{"zarr_format": 2, "sha', "bad_metadata", ""),
    "deep": ("[" * 100000, "resource", "nested too deeply"), "not-utf8": (b'{"zarr_format": 2, "\xff": 1}', "bad_metadata", "not valid JSON"),
    "twice": (json.dumps(GOOD)[:-1] + ', "shape": [1]}', "bad_metadata", "duplicate JSON key"), "large": ('{"x": "' + "a" * (1 << 20) + '"}', "resource", ""),
}
for name, (text, kind, message) in TEXTS.items():
    group.add(f"text-{name}", f"a description that is none: {name}", folder_of(text), bad(kind, message))

MEMBERS = {
    "version-3": ({"zarr_format": 3}, "unsupported", "another version of zarr"),
    "version-huge": ({"zarr_format": 1 << 70}, "bad_metadata", ""),
    "compressed": ({"compressor": {"id": "blosc"}}, "unsupported", "the chunks of an array are encoded"),
    "filtered": ({"filters": [{"id": "delta"}]}, "unsupported", "the chunks of an array are encoded"),
    "order": ({"order": "F"}, "unsupported", "another order"),
    "separator": ({"dimension_separator": "/"}, "unsupported", "another dimension_separator"),
    "separator-climbs": ({"dimension_separator": "../../"}, "unsupported", "another dimension_separator"),
    "dtype-objects": ({"dtype": "|O"}, "unsupported", "an array of this type is not read"),
    "dtype-fields": ({"dtype": [["a", "<f4"]]}, "bad_metadata", ""),
    "dtype-no-order": ({"dtype": "|f4"}, "bad_metadata", "without their order"),
    "dtype-wide": ({"dtype": "<f" + "9" * 30}, "unsupported", "an array of this type is not read"),
    "shape-absent": ({"shape": "absent"}, "bad_metadata", ""),
    "shape-negative": ({"shape": [-3, 3]}, "bad_metadata", ""),
    "shape-fraction": ({"shape": [3.5, 3]}, "bad_metadata", ""),
    "shape-overflow": ({"shape": [1 << 62, 1 << 62]}, "resource", "overflow"),
    "shape-past-64-bits": ({"shape": [1 << 65, 3]}, "bad_metadata", ""),
    "chunk-zero": ({"chunks": [0, 2]}, "bad_metadata", "do not fit its shape"),
    "chunk-negative": ({"chunks": [-2, 2]}, "bad_metadata", ""),
    "chunk-overflow": ({"chunks": [1 << 62, 1 << 62]}, "resource", "overflow"),
    "dims-differ": ({"chunks": [2]}, "bad_metadata", "do not fit its shape"),
    "dims-65": ({"shape": [1] * 65, "chunks": [1] * 65}, "bad_metadata", "do not fit its shape"),
}
for name, (changes, kind, message) in MEMBERS.items():
    outcome = not_understood(message, tensor="w") if kind == "unsupported" else bad(kind, message)
    group.add(name, f"an array that lies: {name}", folder_of(changes), outcome)
group.add("description-folder", "a description that is a folder", folder_of("absent", files={"w/.zarray": None}), bad("io", ""))
group.add("description-gone", "chunks without their description", folder_of("absent"), lost_file("chunks without the file", tensor="w"))

# --- Chunks.

MISSING = lost_file("files of an array's chunks are missing", tensor="w", also=(error("coverage", "", tensor="w"),))
group.add("chunk-missing", "one chunk is not there", folder_of(chunks=CHUNKS | {"1.0": "absent"}), MISSING)
group.add("chunk-bomb", "a million million chunks, of which four are there", folder_of({"shape": [2000000, 2000000]}), MISSING)
group.add("chunk-bomb-64-bits", "2^62 chunks of a byte", folder_of({"shape": [1 << 31, 1 << 31], "chunks": [1, 1], "dtype": "|u1"}, {"0.0": b"\0"}), MISSING)
group.add("chunk-short", "a chunk of a byte too few", folder_of(chunks=CHUNKS | {"0.1": b"\0" * 15}), bad("truncated", "the file is shorter than its entries"))
group.add("chunk-long", "a chunk of a byte too many", folder_of(chunks=CHUNKS | {"0.1": b"\0" * 17}), bad("size_mismatch", "another size than the chunk"))
group.add("chunk-folder", "a chunk that is a folder", folder_of(chunks=CHUNKS | {"0.1": None}), lost_file("a file of the checkpoint is not there", tensor="w"))
group.add("chunk-named-otherwise", "a second file for a chunk, with a leading zero", folder_of(chunks=CHUNKS | {"0.01": b"\0" * 16}), warned("leftover", "not chunks of the array", tensor="w"))
group.add("chunk-outside", "a chunk outside the grid", folder_of(chunks=CHUNKS | {"7.7": b"\0" * 16}), warned("leftover", "not chunks of the array", tensor="w"))
group.add("chunk-far-outside", "a chunk whose place overflows", folder_of(chunks=CHUNKS | {f"0.{1 << 63}": b"\0" * 16}), warned("leftover", "not chunks of the array", tensor="w"))

# --- Objects.

CALLS = z.torch_file(p.dumps(p.Call(p.G("os", "system"), ("touch ckptkit-was-executed",))))
group.add("object-calls", "the state of a generator that is a call", folder_of(files={"rng/shard_0_1.pt": CALLS}), warned("unsafe_pickle", "calls os.system", tensor="rng/shard_0_1"))
group.add("object-garbage", "the state of a generator that is no torch.save file", folder_of(files={"rng/shard_0_1.pt": b"\0" * 64}), damaged("bad_item", "not a torch.save file", tensor="rng/shard_0_1", digest=0))
group.add("common-garbage", "a common.pt that is no torch.save file", folder_of(files={"common.pt": b"\0" * 64}), refused("unsupported", ""))
group.add("common-calls", "a common.pt that is a call", folder_of(files={"common.pt": CALLS}), warned("unsafe_pickle", "calls os.system", tensor="common_state"))
