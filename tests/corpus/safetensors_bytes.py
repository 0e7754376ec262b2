"""safetensors files whose header says what it likes."""
import json
import struct


def file(header, payload=b"", *, length=None):
    """`header`: a dict, or the text or bytes in its place."""
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(header) if length is None else length) + header + payload


def entry(shape=(4,), dtype="F32", offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def one(text, payload=b"\0" * 16):
    """A file whose one tensor `w` is described by the JSON in `text`."""
    return file('{"w":' + text + "}", payload)
