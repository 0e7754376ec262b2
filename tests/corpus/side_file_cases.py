"""Files beside the weights: index.json, ckptkit.json, integrity.json, metadata.json, config.json."""
import json

import dcp_bytes as d
import safetensors_bytes as s
from corpus_case import Group, HARMLESS, Outcome, damaged, error, refused, warned, warning

group = Group("side")
CASES = group.cases
INDEX = "model.safetensors.index.json"
GOOD = s.file({"w": s.entry()}, b"\0" * 16)


def repository(**files):
    """A repository of one tensor and these files. Nobody looks at an index beside model.safetensors."""
    def make(folder):
        (folder / ("weights.safetensors" if INDEX in files["files"] else "model.safetensors")).write_bytes(GOOD)
        for name, data in files["files"].items():
            data = data() if callable(data) else data
            (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
        return folder
    return make


# --- The index of a sharded repository.

INDEXES = {
    "empty": ("", "bad_metadata", "expected an object"),
    "array": ("[]", "bad_metadata", "expected an object"),
    "no-weight-map": ("{}", "bad_metadata", "no weight_map"),
    "weight-map-array": ('{"weight_map":[]}', "bad_metadata", "expected an object"),
    "weight-map-twice": ('{"weight_map":{},"weight_map":{}}', "bad_metadata", "weight_map twice"),
    "file-number": ('{"weight_map":{"w":1}}', "bad_metadata", "expected a string"),
    "file-null": ('{"weight_map":{"w":null}}', "bad_metadata", "expected a string"),
    "tensor-twice": ('{"weight_map":{"w":"weights.safetensors","w":"weights.safetensors"}}', "bad_metadata", "tensor is listed twice"),
    "not-utf8": (b'{"weight_map":{"\xff":"weights.safetensors"}}', "bad_metadata", "JSON is not UTF-8"),
    "deep": ('{"x":' + "[" * 100000 + "]" * 100000 + "}", "resource", "JSON is nested more than 64 levels deep"),
    "nan": ('{"metadata":{"total_size":NaN},"weight_map":{}}', "bad_metadata", "not valid JSON here"),
    "cut": ('{"weight_map":{"w":"weights.safe', "bad_metadata", "not valid JSON here"),
    "trailing": ('{"weight_map":{"w":"weights.safetensors"}} x', "bad_metadata", "expected the end of the document"),
}
for name, (text, kind, message) in INDEXES.items():
    group.add(f"index-{name}", f"an index that lies: {name}", repository(files={INDEX: text}), refused(kind, message, file=INDEX))
group.add("index-total-size-float", "a total_size of 1e999", repository(files={INDEX: '{"metadata":{"total_size":1e999},"weight_map":{"w":"weights.safetensors"}}'}), HARMLESS)
group.add("index-total-size-negative", "a negative total_size", repository(files={INDEX: '{"metadata":{"total_size":-1},"weight_map":{"w":"weights.safetensors"}}'}), HARMLESS)
group.add("index-tensor-missing", "a tensor that its file lacks", repository(files={INDEX: '{"weight_map":{"w":"weights.safetensors","x":"weights.safetensors"}}'}),
          damaged("missing", "the index names a tensor that its file lacks", tensor="x"))
group.add("index-beside-single-file", "an index of an earlier save, whose shards are gone",
          lambda f: repository(files={})(f) and ((f / INDEX).write_text('{"weight_map":{"x":"gone.safetensors"}}'), f)[1], HARMLESS)

# --- Our manifest. A damaged one is an error, never a reason to take the folder for a foreign one.

START = '{"ckptkit":1,"self":"'
MANIFESTS = {
    "empty": ("", "bad_metadata", "not a ckptkit manifest"),
    "other-json": ('{"a":1}', "bad_metadata", "not a ckptkit manifest"),
    "array": ("[]", "bad_metadata", "not a ckptkit manifest"),
    "version-2": ('{"ckptkit":2,"self":"' + "0" * 32 + '"}', "unsupported", "unsupported version of the manifest"),
    "version-huge": ('{"ckptkit":' + "9" * 100, "unsupported", "unsupported version of the manifest"),
    "digest-zero": (START + "0" * 32 + '"}\n', "checksum", "the manifest's own digest differs"),
    "digest-no-hex": (START + "\x1b[2J" * 8 + '"}\n', "checksum", "the manifest's own digest differs"),
    "cut": (START + "0" * 32, "checksum", "the manifest's own digest differs"),
    "traversal": (START + "0" * 32 + '","files":{"names":["../../etc/passwd"],"sizes":[1],"roots":["x"],"crc32c":["00000000"]}}', "checksum",
                  "the manifest's own digest differs"),
    "nul": ("\0" * 4096, "bad_metadata", "not a ckptkit manifest"),
}


def unproven(kind, message, *, file=None):
    """Nobody may believe the bytes."""
    return Outcome(1, 3, 3, (error(kind, message, file=file),))


for name, (text, kind, message) in MANIFESTS.items():
    group.add(f"manifest-{name}", f"a damaged manifest: {name}", repository(files={"ckptkit.json": text}),
              unproven(kind, message, file="ckptkit.json"))
group.add("manifest-folder", "a manifest that is a folder", lambda f: (repository(files={})(f), (f / "ckptkit.json").mkdir(), f)[2],
          unproven("io", "not a regular file"))

# --- integrity.json of Megatron.

SHA = "0" * 64
INTEGRITY = {
    "empty": ("", "bad_metadata", "", None),
    "deep": ("[" * 100000, "resource", "", None),
    "algorithm": ('{"algorithm":"md5","files":{}}', "unsupported", "unknown algorithm", None),
    "files-array": ('{"algorithm":"sha256","files":[]}', "bad_metadata", "", None),
    "parent": ('{"algorithm":"sha256","files":{"../x":"' + SHA + '"}}', "unsafe_path", "path leaves", "../x"),
    "absolute": ('{"algorithm":"sha256","files":{"/etc/passwd":"' + SHA + '"}}', "unsafe_path", "path is absolute", "/etc/passwd"),
    "nul": ('{"algorithm":"sha256","files":{"a\\u0000b":"' + SHA + '"}}', "unsafe_path", "path contains a NUL", None),
    "missing": ('{"algorithm":"sha256","files":{"x":"' + SHA + '"}}', "missing_file", "is not there", "x"),
    "wrong": ('{"algorithm":"sha256","files":{"model.safetensors":"' + SHA + '"}}', "checksum", "SHA-256 of the file", "model.safetensors"),
    "folder": ('{"algorithm":"sha256","files":{".":"' + SHA + '"}}', "unsafe_path", "path names the directory", None),
    "number": ('{"algorithm":"sha256","files":{"model.safetensors":1}}', "bad_metadata", "", None),
}
for name, (text, kind, message, file) in INTEGRITY.items():
    group.add(f"integrity-{name}", f"an integrity.json that lies: {name}", repository(files={"integrity.json": text}),
              damaged(kind, message, file=file, digest=0))

# --- metadata.json, which tells a Megatron checkpoint.

BACKENDS = {
    "empty": ("", "bad_metadata"), "deep": ("[" * 100000, "resource"), "number": ('{"sharded_backend":1}', "bad_metadata"),
    "other": ('{"sharded_backend":"../x"}', "unsupported"), "twice": ('{"sharded_backend":"torch_dist","sharded_backend":"zarr"}', "bad_metadata"),
    "version": ('{"sharded_backend":"torch_dist","sharded_backend_version":2}', "unsupported"),
    "version-huge": ('{"sharded_backend":"torch_dist","sharded_backend_version":' + "9" * 100 + "}", "bad_metadata"),
    "version-text": ('{"sharded_backend":"torch_dist","sharded_backend_version":"1"}', "bad_metadata"),
}
for name, (text, kind) in BACKENDS.items():
    def make(folder, text=text):
        d.one_tensor()(folder)
        (folder / "metadata.json").write_text(text)
        return folder
    group.add(f"backend-{name}", f"a metadata.json that lies: {name}", make, refused(kind, ""))


def without_common(folder):
    d.one_tensor()(folder)
    (folder / "metadata.json").write_text('{"sharded_backend":"torch_dist","sharded_backend_version":1,"common_backend":"torch","common_backend_version":1}')
    return folder


# Tensors are digested without it, and `diff` compares objects, too: so `verify` alone.
group.add("backend-common-gone", "a copy without common.pt", without_common,
          Outcome(1, 1, 0, (error("missing_file", "the common state's file is not there", tensor="common_state", file="common.pt"),)),
          command=("ckpt-inspect", "verify", "@"))

# --- config.json, which a conversion reads.

CONFIGS = {
    "empty": ("", "bad_metadata"), "array": ("[]", "bad_metadata"), "deep": ("[" * 100000, "resource"), "not-utf8": (b'{"a":"\xff"}', "bad_metadata"),
    "nan": ('{"model_type":"llama","hidden_size":NaN}', "bad_metadata"), "no-type": ("{}", "unsupported"),
    "type-number": ('{"model_type":7}', "unsupported"), "type-path": ('{"model_type":"../../x"}', "unsupported"),
    "layers-negative": ('{"model_type":"llama","num_hidden_layers":-1,"hidden_size":8,"num_attention_heads":2,"vocab_size":4,"intermediate_size":8}', "bad_metadata"),
    "layers-huge": ('{"model_type":"llama","num_hidden_layers":4611686018427387904,"hidden_size":8,"num_attention_heads":2,"vocab_size":4,"intermediate_size":8}', "shape_mismatch"),
    "heads-zero": ('{"model_type":"llama","num_hidden_layers":1,"hidden_size":8,"num_attention_heads":0,"vocab_size":4,"intermediate_size":8}', "bad_metadata"),
    "key-twice": ('{"model_type":"llama","model_type":"qwen3"}', "bad_metadata"),
}
for name, (text, kind) in CONFIGS.items():
    group.add(f"config-{name}", f"a config.json that lies: {name}", repository(files={"config.json": text}), Outcome(3, 3, 3, (error(kind, ""),)),
              command=("ckpt-convert", "hf-to-fsdp", "@", "out", "--plan"))

# --- A layout table that the user took from somewhere.

TABLES = {
    "empty": b"", "binary": bytes(range(256)) * 16, "deep": b"(" * 100000, "long-line": b"x" * 1000000, "nul": b"layout\0",
}
CONFIG = '{"model_type":"llama","num_hidden_layers":1,"hidden_size":8,"num_attention_heads":2,"vocab_size":4,"intermediate_size":8}'
for name, data in TABLES.items():
    def make_table(folder, data=data):
        repository(files={"config.json": CONFIG, "table.layout": data})(folder)
        return folder / "table.layout"
    group.add(f"table-{name}", f"a layout table that is none: {name}", make_table, Outcome(3, 3, 3, (error("bad_metadata", ""),)),
              command=("ckpt-convert", "hf-to-fsdp", "@folder", "out", "--plan", "--mapping", "@"))
