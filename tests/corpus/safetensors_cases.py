"""Headers of .safetensors files: lengths, JSON, dtypes, extents, names."""
import json
import struct

import safetensors_bytes as s
from corpus_case import Group, HARMLESS, damaged, error, not_understood, one_file, refused, warned

group = Group("safetensors")
CASES = group.cases
ZEROS = b"\0" * 16


def st(data):
    return one_file("model.safetensors", data)


def one(text, payload=ZEROS):
    return st(s.one(text, payload))


def bad(kind, message, tensor=None):
    return refused(kind, message, tensor=tensor, file="model.safetensors")


# --- The length in front.

good = s.file({"w": s.entry()}, ZEROS)
group.add("empty-file", "a file of no bytes", st(b""), bad("truncated", "the file is empty"))
group.add("seven-bytes", "not even a length", st(b"\x08\0\0\0\0\0\0"), bad("truncated", "file is too small for a safetensors header"))
group.add("length-past-end", "a header longer than the file", st(s.file({"w": s.entry()}, length=5000)), bad("truncated", "file ends inside its header"))
group.add("length-past-cap", "a header of more than 100 MB", st(s.file({"w": s.entry()}, length=100_000_001)), bad("resource", "header is larger than the format allows"))
group.add("length-max", "a header of 2^64-1 bytes", st(s.file({}, length=2**64 - 1)), bad("resource", "header is larger than the format allows"))
group.add("length-sign", "a header of 2^63 bytes", st(s.file({}, length=2**63)), bad("resource", "header is larger than the format allows"))
group.add("length-wraps", "a length that wraps around when 8 is added", st(s.file({}, length=2**64 - 8)), bad("resource", "header is larger than the format allows"))
group.add("length-zero", "a header of no bytes", st(s.file("", ZEROS, length=0)), bad("bad_metadata", "not valid JSON here: expected an object"))
group.add("length-too-short", "a length that cuts the JSON", st(s.file({"w": s.entry()}, ZEROS, length=20)), bad("bad_metadata", "not valid JSON here"))
group.add("cut-payload", "a file that ends inside its tensor", st(good[:-1]), bad("truncated", "the file is shorter than its tensors", "w"))
group.add("bytes-behind", "a polyglot: bytes behind the last tensor", st(good + b"PK\5\6" + b"\0" * 18), bad("bad_metadata", "bytes behind the last tensor"))
group.add("no-tensors-but-bytes", "an empty header and a payload", st(s.file("{}", ZEROS)), bad("bad_metadata", "bytes behind the last tensor"))

# --- JSON.

NOT_JSON = {
    "array": "[]", "null": "null", "text": '"w"', "cut": '{"w":', "single-quotes": "{'w':{}}", "comment": "{/* */}",
    "trailing-comma": '{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},}', "nan": '{"w":NaN}', "two-documents": "{}{}",
    "control-in-text": '{"w\n":{}}', "unterminated": '{"w', "half-surrogate": '{"\\ud800":{}}', "bad-escape": '{"\\x":{}}',
    "nul-padding": "{}\0\0\0\0\0\0", "bom": "\ufeff{}", "second-brace": "{{}}",
}
for name, text in NOT_JSON.items():
    message = "half of a surrogate pair" if name == "half-surrogate" else "not valid JSON here"
    group.add(f"json-{name}", f"a header that is not JSON object: {text[:20]!r}", st(s.file(text, ZEROS)), bad("bad_metadata", message))
group.add("json-not-utf8", "a name that is not UTF-8", st(s.file(b'{"\xff":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', ZEROS)), bad("bad_metadata", "JSON is not UTF-8"))
group.add("json-overlong-utf8", "an overlong NUL", st(s.file(b'{"\xc0\x80":{}}', ZEROS)), bad("bad_metadata", "JSON is not UTF-8"))
group.add("json-surrogate-utf8", "a surrogate in UTF-8", st(s.file(b'{"\xed\xa0\x80":{}}', ZEROS)), bad("bad_metadata", "JSON is not UTF-8"))
group.add("json-deep", "ten thousand levels of nesting in a tensor", one('{"shape":' + "[" * 10000 + "]" * 10000 + "}"), bad("bad_metadata", "expected an unsigned integer", "w"))
group.add("json-deep-metadata", "ten thousand levels in __metadata__", st(s.file('{"__metadata__":{"a":' + "{" * 10000 + "}" * 10000 + "}}")), bad("bad_metadata", "expected a string"))
group.add("json-huge-number", "an offset of a hundred thousand digits", one('{"dtype":"F32","shape":[4],"data_offsets":[0,' + "9" * 100000 + "]}"), bad("bad_metadata", "JSON number does not fit 64 bits", "w"))
group.add("json-many-tensors", "two hundred thousand empty tensors", st(lambda: s.file(
    {f"t{i}": s.entry((0,), "F32", (0, 0)) for i in range(200000)})), HARMLESS, seconds=20)

# --- Fields of a tensor.

FIELDS = {
    "no-dtype": ('{"shape":[4],"data_offsets":[0,16]}', "bad_metadata", "a tensor needs dtype, shape and data_offsets"),
    "no-shape": ('{"dtype":"F32","data_offsets":[0,16]}', "bad_metadata", "a tensor needs dtype, shape and data_offsets"),
    "no-offsets": ('{"dtype":"F32","shape":[4]}', "bad_metadata", "a tensor needs dtype, shape and data_offsets"),
    "unknown-field": ('{"dtype":"F32","shape":[4],"data_offsets":[0,16],"file":"../x"}', "bad_metadata", "unknown field of a tensor"),
    "dtype-twice": ('{"dtype":"F32","dtype":"I32","shape":[4],"data_offsets":[0,16]}', "bad_metadata", "field twice"),
    "shape-twice": ('{"dtype":"F32","shape":[4],"shape":[2],"data_offsets":[0,16]}', "bad_metadata", "field twice"),
    "offsets-twice": ('{"dtype":"F32","shape":[4],"data_offsets":[0,16],"data_offsets":[0,8]}', "bad_metadata", "field twice"),
    "dtype-unknown": ('{"dtype":"F128","shape":[4],"data_offsets":[0,16]}', "unsupported", "unknown dtype"),
    "dtype-lower-case": ('{"dtype":"f32","shape":[4],"data_offsets":[0,16]}', "unsupported", "unknown dtype"),
    "dtype-nul": ('{"dtype":"F32\\u0000","shape":[4],"data_offsets":[0,16]}', "unsupported", "unknown dtype"),
    "dtype-number": ('{"dtype":32,"shape":[4],"data_offsets":[0,16]}', "bad_metadata", "expected a string"),
    "shape-number": ('{"dtype":"F32","shape":4,"data_offsets":[0,16]}', "bad_metadata", "expected an array"),
    "shape-text": ('{"dtype":"F32","shape":["4"],"data_offsets":[0,16]}', "bad_metadata", "expected an unsigned integer"),
    "shape-float": ('{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}', "bad_metadata", "expected an unsigned integer"),
    "shape-exponent": ('{"dtype":"F32","shape":[4e0],"data_offsets":[0,16]}', "bad_metadata", "expected an unsigned integer"),
    "shape-leading-zero": ('{"dtype":"F32","shape":[04],"data_offsets":[0,16]}', "bad_metadata", "expected an unsigned integer"),
    "shape-null": ('{"dtype":"F32","shape":[null],"data_offsets":[0,16]}', "bad_metadata", "expected an unsigned integer"),
    "shape-object": ('{"dtype":"F32","shape":{"0":4},"data_offsets":[0,16]}', "bad_metadata", "expected an array"),
    "offsets-one": ('{"dtype":"F32","shape":[4],"data_offsets":[0]}', "bad_metadata", "data_offsets are not a pair"),
    "offsets-three": ('{"dtype":"F32","shape":[4],"data_offsets":[0,16,16]}', "bad_metadata", "data_offsets are not a pair"),
    "offsets-empty": ('{"dtype":"F32","shape":[4],"data_offsets":[]}', "bad_metadata", "data_offsets are not a pair"),
    "offsets-negative": ('{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}', "bad_metadata", "expected an unsigned integer"),
    "offsets-text": ('{"dtype":"F32","shape":[4],"data_offsets":"0,16"}', "bad_metadata", "expected an array"),
    "tensor-is-array": ('[0,16]', "bad_metadata", "expected an object"),
    "tensor-is-null": ('null', "bad_metadata", "expected an object"),
    "dims-65": ('{"dtype":"F32","shape":[' + ",".join(["1"] * 65) + '],"data_offsets":[0,4]}', "resource", "shape has more than 64 dims"),
}
for name, (text, kind, message) in FIELDS.items():
    group.add(f"field-{name}", f"a tensor's description: {name}", one(text), bad(kind, message, "w"))
group.add("sub-byte-odd", "three halves of a byte", st(s.file({"w": s.entry((3,), "F4", (0, 2))}, b"\0\0")), bad("size_mismatch", "tensor ends inside a byte", "w"))
group.add("sub-byte-6", "five times six bits", st(s.file({"w": s.entry((5,), "F6_E2M3", (0, 4))}, b"\0" * 4)), bad("size_mismatch", "tensor ends inside a byte", "w"))
group.add("sub-byte-scalar", "half a byte without dims", st(s.file({"w": s.entry((), "F4", (0, 1))}, b"\0")), bad("size_mismatch", "tensor ends inside a byte", "w"))
group.add("sub-byte-rows", "rows that end inside a byte", st(s.file({"w": s.entry((2, 3), "F4", (0, 3))}, b"\0" * 3)), not_understood("F4 tensor whose rows are not whole bytes", tensor="w"))
group.add("dtype-without-torch", "a dtype that torch has not", st(s.file({"w": s.entry((4,), "F6_E3M2", (0, 3))}, b"\0" * 3)), not_understood("torch has no such dtype", tensor="w"))
group.add("bool-not-0-or-1", "a bool of 255: bytes are delivered as they are", st(s.file({"w": s.entry((4,), "BOOL", (0, 4))}, b"\xff" * 4)), HARMLESS)

# --- Names and __metadata__.

T = '{"dtype":"F32","shape":[2],"data_offsets":[%d,%d]}'
group.add("tensor-twice", "the same name twice", st(s.file('{"w":' + T % (0, 8) + ',"w":' + T % (8, 16) + "}", ZEROS)), bad("bad_metadata", "tensor is listed twice", "w"))
group.add("tensor-twice-escaped", "the same name twice, once with an escape", st(s.file('{"w":' + T % (0, 8) + ',"\\u0077":' + T % (8, 16) + "}", ZEROS)), bad("bad_metadata", "tensor is listed twice", "w"))
group.add("names-normalise", "two names that Unicode calls the same are two", st(s.file('{"\u00e9":' + T % (0, 8) + ',"e\u0301":' + T % (8, 16) + "}", ZEROS)), HARMLESS)
group.add("name-case", "two names that differ in case are two", st(s.file('{"w":' + T % (0, 8) + ',"W":' + T % (8, 16) + "}", ZEROS)), HARMLESS)
group.add("name-empty", "a tensor without a name", st(s.file({"": s.entry()}, ZEROS)), HARMLESS)
group.add("name-nul", "a name with NUL and terminal escapes", st(s.file({"a\0\x1b[2J": s.entry()}, ZEROS)), HARMLESS)
group.add("name-path", "a name that is a path", st(s.file({"../../etc/passwd": s.entry()}, ZEROS)), HARMLESS)
group.add("name-long", "a name of a megabyte", st(s.file({"n" * 1000000: s.entry()}, ZEROS)), HARMLESS)
group.add("metadata-number", "__metadata__ with a number", st(s.file('{"__metadata__":{"a":1},"w":' + json.dumps(s.entry()) + "}", ZEROS)), bad("bad_metadata", "expected a string"))
group.add("metadata-array", "__metadata__ that is an array", st(s.file('{"__metadata__":[]}')), bad("bad_metadata", "expected an object"))
group.add("metadata-null", "__metadata__ that is null, which the original takes for none", st(s.file('{"__metadata__":null,"w":' + json.dumps(s.entry()) + "}", ZEROS)), HARMLESS)
group.add("metadata-null-twice", "__metadata__ that is null, twice", st(s.file('{"__metadata__":null,"__metadata__":null}')), bad("bad_metadata", "__metadata__ twice"))
group.add("metadata-not-null", "__metadata__ that starts like null", st(s.file('{"__metadata__":nil}')), bad("bad_metadata", "not valid JSON here"))
group.add("metadata-twice", "__metadata__ twice", st(s.file('{"__metadata__":{},"__metadata__":{}}')), bad("bad_metadata", "__metadata__ twice"))
group.add("metadata-key-twice", "a metadata key twice", st(s.file('{"__metadata__":{"format":"pt","format":"np"}}')), bad("bad_metadata", "metadata key twice"))
group.add("metadata-tensor", "__metadata__ that looks like a tensor", st(s.file({"__metadata__": s.entry()}, ZEROS)), bad("bad_metadata", "expected a string"))

# --- Extents.

group.add("hole", "bytes in front of a tensor that belong to none", st(s.file({"w": s.entry(offsets=(16, 32))}, ZEROS * 2)), bad("bad_metadata", "bytes in front of a tensor belong to none", "w"))
group.add("hole-between", "bytes between two tensors", st(s.file({"a": s.entry(), "w": s.entry(offsets=(20, 36))}, b"\0" * 36)), bad("bad_metadata", "bytes in front of a tensor belong to none", "w"))
group.add("overlap", "two tensors that share bytes", st(s.file({"a": s.entry(), "w": s.entry(offsets=(8, 24))}, b"\0" * 24)), bad("overlap", "tensors share bytes", "w"))
group.add("same-extent", "two tensors of the same bytes", st(s.file({"a": s.entry(), "w": s.entry()}, ZEROS)), bad("overlap", "tensors share bytes", "w"))
group.add("reversed", "an end in front of the begin", st(s.file({"w": s.entry(offsets=(16, 0))}, ZEROS)), bad("out_of_range", "tensor ends before it begins", "w"))
group.add("extent-too-small", "fewer bytes than the shape needs", st(s.file({"w": s.entry((5,))}, ZEROS)), bad("size_mismatch", "extent and shape disagree", "w"))
group.add("extent-too-large", "more bytes than the shape needs", st(s.file({"w": s.entry((3,))}, ZEROS)), bad("size_mismatch", "extent and shape disagree", "w"))
group.add("empty-inside", "an empty tensor in the middle of another", st(s.file({"a": s.entry(), "w": s.entry((0,), offsets=(8, 8))}, ZEROS)), bad("overlap", "tensors share bytes", "w"))
group.add("empty-past-end", "an empty tensor behind the end", st(s.file({"w": s.entry((0,), offsets=(2**60, 2**60))})), bad("bad_metadata", "bytes in front of a tensor belong to none", "w"))
group.add("not-safetensors", "another format under the name", st(b"\x89HDF\r\n\x1a\n" + b"\0" * 100), bad("unsupported", "offsets or lengths"))
group.add("torch-inside", "a zip under the name", st(b"PK\3\4" + b"\0" * 100), bad("truncated", "file ends inside its header"))
