"""The pickle of .metadata: structures that share, repeat, contradict or call; and objects beside the tensors."""
import struct

import dcp_bytes as d
import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, HARMLESS, damaged, error, refused, warned, warning, without_tensors

group = Group("metadata")
CASES = group.cases
ITEM = d.item()
GOOD = d.stored(0, len(ITEM))
TOUCH = ("touch ckptkit-was-executed",)


def bad(kind, message, tensor=None):
    return refused(kind, message, tensor=tensor, file=".metadata")


def add(name, attack, metadata, outcome, **options):
    group.add(name, attack, d.write(metadata), outcome, **options)


# --- The root.

ROOTS = {
    "none": (None, "bad_metadata"), "list": ([], "bad_metadata"), "dict": ({"state_dict_metadata": {}}, "bad_metadata"),
    "other-class": (p.Inst(p.G("os", "Metadata"), {"state_dict_metadata": {}, "storage_data": {}}), "bad_metadata"),
    "no-state": (p.Inst(p.G(d.METADATA, "Metadata")), "bad_metadata"),
    "called": (p.Call(p.G(d.METADATA, "Metadata"), (), {"state_dict_metadata": {}}), "bad_metadata"),
    "system": (p.Call(p.G("os", "system"), TOUCH), "unsafe_pickle"),
}
for name, (value, kind) in ROOTS.items():
    add(f"root-{name}", f"the root is not a Metadata: {name}", p.dumps(value), bad(kind, "does not hold a torch.distributed.checkpoint Metadata"))
add("root-state-list", "the state of the root is a list", p.Inst(p.G(d.METADATA, "Metadata"), [1]), bad("bad_metadata", "does not hold a torch.distributed.checkpoint Metadata"))
add("no-entries", "no state_dict_metadata", p.Inst(p.G(d.METADATA, "Metadata"), {"storage_data": {}}), bad("bad_metadata", "state_dict_metadata is not a dict"))
add("no-storage", "no storage_data", p.Inst(p.G(d.METADATA, "Metadata"), {"state_dict_metadata": {}}), bad("bad_metadata", "storage_data is missing"))
add("storage-list", "storage_data is a list", p.Inst(p.G(d.METADATA, "Metadata"), {"state_dict_metadata": {}, "storage_data": []}), bad("bad_metadata", "storage_data is not a dict"))
add("empty-file", "a .metadata of no bytes", b"", bad("bad_metadata", "an empty file where a pickle is expected"))

# --- Entries.

W = d.described((4,))
add("key-number", "a key that is a number", d.root([(7, W)], []), bad("bad_metadata", "a key of state_dict_metadata is not text"))
add("key-twice", "the same key twice", d.root([("w", W), ("w", d.described((2,)))], [(d.index("w", (0,)), GOOD)]), bad("bad_metadata", "the same key twice", "w"))
add("entry-number", "an entry that is a number", d.root({"w": 7}, []), bad("bad_metadata", "neither TensorStorageMetadata nor BytesStorageMetadata", "w"))
add("entry-call", "an entry that calls", d.root({"w": p.Call(p.G("os", "system"), TOUCH)}, []), bad("bad_metadata", "neither TensorStorageMetadata nor BytesStorageMetadata", "w"))
add("entry-no-size", "a tensor without a size", d.root({"w": p.Inst(p.G(d.METADATA, "TensorStorageMetadata"), {"properties": d.properties(), "chunks": []})}, []), bad("bad_metadata", "size is not a list of integers", "w"))
add("entry-no-dtype", "a tensor without a dtype", d.root({"w": p.Inst(p.G(d.METADATA, "TensorStorageMetadata"), {"properties": {}, "size": d.size((4,)), "chunks": []})}, []), bad("bad_metadata", "properties holds no dtype", "w"))
add("entry-chunks-number", "chunks that are a number", d.root({"w": p.Inst(p.G(d.METADATA, "TensorStorageMetadata"), {"properties": d.properties(), "size": d.size((4,)), "chunks": 1})}, []), bad("bad_metadata", "chunks is not a list", "w"))
add("entry-chunk-number", "a chunk that is a number", d.root({"w": p.Inst(p.G(d.METADATA, "TensorStorageMetadata"), {"properties": d.properties(), "size": d.size((4,)), "chunks": [1]})}, []), bad("bad_metadata", "a chunk is not a pair of integer lists", "w"))
add("entry-dtype-of-os", "a dtype of the module os", d.root({"w": p.Inst(p.G(d.METADATA, "TensorStorageMetadata"), {"properties": p.Inst(p.G(d.METADATA, "TensorProperties"), {"dtype": p.G("os", "float32")}), "size": d.size((4,)), "chunks": []})}, []), bad("bad_metadata", "properties holds no dtype", "w"))
add("size-by-call-of-call", "what torch.Size returned is called as a size", d.root({"w": p.Inst(p.G(d.METADATA, "TensorStorageMetadata"), {"properties": d.properties(), "size": p.Call(p.Call(p.G("torch", "Size"), (("x",),)), ((4,),)), "chunks": []})}, []), bad("bad_metadata", "size is not a list of integers", "w"))
add("index-number", "a storage key that is a number", d.root({"w": W}, [(7, GOOD)]), bad("bad_metadata", "a key of storage_data is not a MetadataIndex"))
add("stored-number", "a stored item that is a number", d.root({"w": W}, [(d.index("w", (0,)), 7)]), bad("bad_metadata", "a value of storage_data is not a _StorageInfo", "w"))
add("stored-call", "a stored item that calls", d.root({"w": W}, [(d.index("w", (0,)), p.Call(p.G("os", "system"), TOUCH))]), bad("bad_metadata", "a value of storage_data is not a _StorageInfo", "w"))
add("stored-twice", "two items for one chunk", d.root({"w": W}, [(d.index("w", (0,)), GOOD), (d.index("w", (0,)), d.stored(1, 9))]), bad("bad_metadata", "two storage entries for the same chunk", "w"))
add("path-number", "a path that is a number", d.root({"w": W}, [(d.index("w", (0,)), d.stored(0, 9, 7))]), bad("bad_metadata", "a value of storage_data is not a _StorageInfo", "w"))
add("item-missing", "a chunk without an item", d.root({"w": W}, []), damaged("bad_metadata", "no storage entry", tensor="w", also=(
    error("coverage", "no chunk holds", tensor="w"), warning("leftover", "a data file that no entry refers to"))))
add("chunks-overlap", "two chunks that share elements", d.root({"w": d.described((6,), [((0,), (4,)), ((2,), (4,))])}, [(d.index("w", (0,)), GOOD), (d.index("w", (2,)), GOOD)]), damaged("overlap", "chunks share elements", tensor="w"))
add("chunk-twice", "the same chunk twice", d.root({"w": d.described((4,), [((0,), (4,))] * 2)}, [(d.index("w", (0,)), GOOD)]), warned("overlap", "the same chunk is listed twice", tensor="w"))
add("calls-beside", "a call in a field nobody reads", d.root({"w": W}, [(d.index("w", (0,)), GOOD)], version=p.Call(p.G("os", "system"), TOUCH)), warned("unsafe_pickle", "calls os.system", file=".metadata"))

# --- What is shared multiplies.


def shared_chunks(tensors, chunks):
    """Many tensors that share one list of many references to one chunk."""
    entries = b"".join(p.text(f"t{i}") + p.enc(p.G(d.METADATA, "TensorStorageMetadata")) + b")\x81}(" + p.text("properties") + b"h\x02"
                       + p.text("size") + b"h\x03" + p.text("chunks") + b"h\x01ub" for i in range(tensors))
    return (b"\x80\x02" + p.enc(d.chunk((0,), (4,))) + b"q\x000](" + b"h\0" * chunks + b"eq\x010" + p.enc(d.properties()) + b"q\x020"
            + p.enc(d.size((4,))) + b"q\x030" + p.enc(p.G(d.METADATA, "Metadata")) + b")\x81}(" + p.text("state_dict_metadata") + b"}("
            + entries + b"u" + p.text("storage_data") + b"}ub.")


add("shared-chunk-list", "20000 tensors that share a list of 100000 chunks: two billion chunks in 3 MB", lambda: shared_chunks(20000, 100000),
    bad("resource", "tensors list more chunks than the file can hold"))


def shared_field(field, shared, objects):
    """`objects` _StorageInfo whose `field` is one shared value."""
    infos = b"".join(p.enc(d.index("w", (i,))) + p.enc(p.G("torch.distributed.checkpoint.filesystem", "_StorageInfo")) + b")\x81}("
                     + p.text("relative_path") + p.text("x") + p.text("offset") + b"K\0" + p.text("length") + b"K\1" + p.text(field) + b"h\0ub"
                     for i in range(objects))
    return (b"\x80\x02" + shared + b"q\x000" + p.enc(p.G(d.METADATA, "Metadata")) + b")\x81}(" + p.text("state_dict_metadata") + b"}"
            + p.text("storage_data") + b"}(" + infos + b"uub.")


add("shared-transforms", "20000 items that share a list of 300000 transforms", lambda: shared_field(
    "transform_descriptors", p.text("t" * 200) + b"q\x010](" + b"h\1" * 300000 + b"e", 20000),
    without_tensors(warned("leftover", "a data file that no entry refers to")))


def shared_offsets(chunks, dims):
    return (b"\x80\x02](" + b"K\1" * dims + b"eq\x000](" + b"".join(
        p.enc(p.G(d.METADATA, "ChunkStorageMetadata")) + b")\x81}(" + p.text("offsets") + b"h\0" + p.text("sizes") + b"h\0ub"
        for _ in range(chunks)) + b"e.")


add("shared-dims", "40000 chunks that share a list of 300000 dims", lambda: shared_offsets(40000, 300000), bad("bad_metadata", "does not hold a torch.distributed.checkpoint Metadata"))


def shared_state(objects, fields):
    return (b"\x80\x02}(" + p.text("x") + b"q\1Nh\1N" + b"h\1N" * fields + b"uq\x000](" + b"".join(
        p.enc(p.G(d.METADATA, "ChunkStorageMetadata")) + b")\x81h\0b" for _ in range(objects)) + b"e.")


add("shared-state", "60000 chunks that share a state of 200000 fields", lambda: shared_state(60000, 200000), bad("bad_metadata", "does not hold a torch.distributed.checkpoint Metadata"))


def sharing_root(shared, **fields):
    """A root without tensors. `fields`: opcodes of more of its state, which refer to what those of `shared` put into the memo."""
    more = b"".join(p.text(name) + value for name, value in fields.items())
    return (b"\x80\x02" + b"0".join(shared) + b"0" + p.enc(p.G(d.METADATA, "Metadata")) + b")\x81}(" + p.text("state_dict_metadata") + b"}"
            + p.text("storage_data") + b"}" + more + b"ub.")


LONG_TEXT = p.text("k" * 2**20)


def shared_paths(keys, steps, step=b"K\1", *before):
    """Keys of planner_data that share a path of many equal steps; `before`: opcodes that the step needs."""
    planner = b"}(" + b"".join(p.text(f"k{i}") + b"h\0" for i in range(keys)) + b"u"
    return sharing_root([*before, b"(" + step * steps + b"tq\x00"], planner_data=planner)


add("shared-planner-path", "60000 keys that share a path of 200000 steps", lambda: shared_paths(60000, 200000),
    without_tensors(warned("resource", "planner_data holds something that is not a path and is ignored", also=(warning("leftover", "a data file"),))))
add("shared-planner-step", "2000 keys that share a path of 200 references to a text of 1 MiB: 400 GB to copy", lambda: shared_paths(2000, 200, b"h\1", LONG_TEXT + b"q\x01"),
    without_tensors(warned("resource", "planner_data holds something that is not a path and is ignored", also=(warning("leftover", "a data file"),))))


def shared_mcore_key(uses):
    """Megatron's data whose every key is the same long text."""
    shape = b"}(" + p.text("nd_reformulated_orig_global_shape") + p.enc(d.size((4,))) + b"uq\x01"
    return sharing_root([LONG_TEXT + b"q\x00", shape], mcore_data=b"}(" + b"h\0h\1" * uses + b"u")


add("shared-mcore-key", "300000 entries of one key of 1 MiB: 300 GB to copy", lambda: shared_mcore_key(300000),
    without_tensors(warned("leftover", "a data file that no entry refers to")))
add("planner-call", "planner_data that calls", d.root({"w": W}, [(d.index("w", (0,)), GOOD)], planner_data=p.Call(p.G("os", "system"), TOUCH)),
    warned("bad_metadata", "planner_data is not a dict of paths and is ignored", also=(warning("unsafe_pickle", "calls os.system"),)))
add("memo-gap", "MEMOIZE where readers disagree about its number", b"\x80\x04K\1q\x050K\2\x940h\x06.", bad("bad_metadata", "MEMOIZE behind a gap in the memo"))

# --- Objects.


def one_object(value, storages=None, **fields):
    data = z.torch_file(value if isinstance(value, bytes) else p.dumps(value), storages, **fields)
    return d.write(d.root({"x": p.Inst(p.G(d.METADATA, "BytesStorageMetadata"), {})}, [(d.index("x"), d.stored(0, len(data)))]), {d.FILE: data})


def array_of(data, shape, dtype, order, is_fortran=False):
    """A numpy array as pickle writes it."""
    return p.Call(p.G("numpy._core.multiarray", "_reconstruct"), (p.G("numpy", "ndarray"), (0,), b"b"),
                  (1, shape, p.Call(p.G("numpy", "dtype"), (dtype, False, True), (3, order, None)), is_fortran, data))


OBJECTS = {
    "system": (p.Call(p.G("os", "system"), TOUCH), warned("unsafe_pickle", "calls os.system", tensor="x")),
    "nested-frozensets": (p.Raw(b"(" * 40 + b"N" + b"\x91" * 40), HARMLESS),
    "nested-sets": (p.Raw(b"\x8f(" * 40 + b"N" + b"\x90" * 40), HARMLESS),
    "cycle": (p.Raw(b"]q\0h\0a"), damaged("resource", "", tensor="x")),
    "laughs": (p.Raw(b"]q\0" + b"".join(b"0](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(60))), damaged("resource", "", tensor="x")),
    "deep": (p.Raw(b"]" * 100000 + b"a" * 99999), damaged("resource", "", tensor="x")),
    "big-int": (p.Raw(b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20)), damaged("resource", "an integer of more than 4096 bytes", tensor="x")),
    "inst": (p.Raw(b"(ios\nsystem\n"), damaged("unsafe_pickle", "opcode INST", tensor="x")),
    "numpy-shape-lies": (array_of(b"12345678", (2**40,), "f8", "<"), HARMLESS),
    "numpy-dtype-huge": (p.Call(p.G("numpy._core.multiarray", "scalar"), (p.Call(p.G("numpy", "dtype"), ("S9999999", False, True)), b"x")), HARMLESS),
    "numpy-dtype-zero": (array_of(b"", (2**31, 2**31), "S0", "|", is_fortran=True), HARMLESS),
    "datetime-garbage": (p.Call(p.G("datetime", "datetime"), (b"\xff" * 10,)), HARMLESS),
    "tensor-outside": ({"t": p.tensor((99,))}, damaged("bad_item", "", tensor="x")),
}
for name, (value, outcome) in OBJECTS.items():
    group.add(f"object-{name}", f"an object beside the tensors: {name}", one_object(value), without_tensors(outcome))


def repeated(value, times):
    """A list of many references to one value."""
    return p.Raw(p.enc(value) + b"q\x000](" + b"h\0" * times + b"e")


group.add("object-tensor-repeated", "a list of 50000 references to a tensor of 1 MiB: 50 GB to digest",
          one_object(repeated(p.tensor((2**18,), elements=2**18), 50000), {"0": bytes(2**20)}), without_tensors())
group.add("object-array-repeated", "a list of 50000 references to an array of 1 MiB: 50 GB to digest",
          one_object(p.dumps(repeated(array_of(bytes(2**20), (2**20,), "u1", "|"), 50000), protocol=3)), without_tensors())
group.add("object-tensors-expanded", "100 tensors of 768 MiB each over one element: 75 GB to digest",
          one_object([p.tensor((3 * 2**26,), stride=(0,)) for _ in range(100)], {"0": bytes(16)}),
          without_tensors(damaged("resource", "the file is far too small for the object's tensors", tensor="x")))

# --- Blobs of safetensors: many tensors, one header.


def blobs(headers, keys, folder):
    """One-element tensors, the i-th in the blob of file i % len(headers); a header gets the entries of its tensors."""
    names = [f"k{i:05d}" for i in range(keys)]
    files = {}
    for i, header in enumerate(headers):
        entries = "".join(f',"{key}":{{"dtype":"F32","shape":[1],"data_offsets":[{4 * at},{4 * at + 4}]}}'
                          for at, key in enumerate(names[i::len(headers)]))
        text = (header + entries + "}").encode()
        files[f"{i}.distcp"] = b"objects " + struct.pack("<Q", len(text)) + text + bytes(4 * len(names[i::len(headers)]))
    stored = [d.stored(8, len(files[f"{i % len(headers)}.distcp"]) - 8, f"{i % len(headers)}.distcp") for i in range(keys)]
    return d.write(d.root([(key, d.described((1,))) for key in names], [(d.index(key, (0,)), at) for key, at in zip(names, stored)]), files)(folder)


LONG_HEADER = '{"__metadata__":{"x":"' + "a" * 2**23 + '"}'
group.add("blobs-in-turn", "2000 tensors, by turns of two blobs whose headers take 8 MiB each", lambda folder: blobs((LONG_HEADER, LONG_HEADER), 2000, folder), HARMLESS)
BROKEN = "not valid JSON at byte"
group.add("blob-unreadable", "1000 tensors of a blob whose header of 8 MiB is not JSON", lambda folder: blobs((LONG_HEADER + ",}",), 1000, folder),
          damaged("bad_metadata", BROKEN, tensor="k00000", also=tuple(error("bad_metadata", BROKEN, tensor=f"k{i:05d}") for i in range(1, 1000))))
