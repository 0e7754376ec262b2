"""Makes an HDF5 file of texts and an enumeration: hdf5_texts.py FILE [key | chunks [LIBVER]]. Prints key -> hex of the bytes that h5py reads.

    key      the file has one data set instead, whose name is not UTF-8
    chunks   data sets of texts in chunks, and some that were never written, instead: key -> the texts, in lists
"""
import json
import sys

import h5py
import numpy as np

PADDINGS = {"nul-terminated": h5py.h5t.STR_NULLTERM, "nul-padded": h5py.h5t.STR_NULLPAD, "space-padded": h5py.h5t.STR_SPACEPAD}
TEXTS = {"short": b"ab", "inner": b"a\0b", "latin": b"\xe9\xff", "utf8": "é".encode(), "empty": b"", "spaces": b"a  "}


def fixed(padding, size):
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(size)
    kind.set_strpad(padding)
    return kind


def add_attribute(group, name, kind, content):
    scalar = h5py.h5s.create(h5py.h5s.SCALAR)
    attribute = h5py.h5a.create(group.id, name.encode(), kind, scalar)
    attribute.write(np.frombuffer(content, dtype=f"S{len(content)}").reshape(()), mtype=kind)


# Of a data set of 5 texts.
CHUNKS = {"plain": {"chunks": True}, "gzip": {"chunks": True, "compression": "gzip"}, "pairs": {"chunks": (2,), "compression": "gzip", "shuffle": True},
          "lzf": {"chunks": (3,), "compression": "lzf"}, "may_grow": {"chunks": (4,), "maxshape": (9,), "compression": "gzip"}}


def fill_chunks(file):
    texts = ["alpha", "", "\u00e9", "a" * 9000, "e f"]
    padded = np.dtype("S9000")
    forms = {"long": (h5py.string_dtype(), lambda rows: np.array(rows, object)), "fixed": (padded, lambda rows: np.char.encode(rows, "utf-8").astype(padded))}
    for kind, (dtype, array) in forms.items():
        group = file.create_group(kind)
        for name, options in CHUNKS.items():
            group.create_dataset(name, data=array(texts), dtype=dtype, **options)
        rows = array([texts[:3], texts[2:]])
        group.create_dataset("rows", data=rows, dtype=dtype, chunks=(1, 2), compression="gzip")
        group.create_dataset("corner", data=rows, dtype=dtype, chunks=(4, 4), maxshape=(4, 4))
        group.create_dataset("none", shape=(0,), dtype=dtype, chunks=(4,), maxshape=(8,))
        group.create_dataset("never", shape=(3,), dtype=dtype)
        group.create_dataset("partly", shape=(7,), dtype=dtype, chunks=(2,))[2] = b"one"
        group.create_dataset("filled", shape=(3,), dtype=dtype, fillvalue="some")
    file["fixed"].create_dataset("summed", data=array(texts), dtype=padded, chunks=(2,), fletcher32=True)
    file["w"] = np.arange(4, dtype="f4")


def in_lists(value):
    return [in_lists(item) for item in value] if isinstance(value, list) else value.decode()


def make_chunks(path, libver=None):
    with h5py.File(path, "w", libver=libver) as file:
        fill_chunks(file)
    with h5py.File(path) as file:
        sets = {f"{kind}/{name}": item for kind in ("long", "fixed") for name, item in file[kind].items()}
        print(json.dumps({key: in_lists(item[()].tolist()) for key, item in sets.items()}))


def main():
    if sys.argv[2:3] == ["chunks"]:
        make_chunks(sys.argv[1], *sys.argv[3:])
        return
    with h5py.File(sys.argv[1], "w") as file:
        if sys.argv[2:] == ["key"]:
            file.create_dataset(b"w\xff", data=np.arange(4, dtype="f4"))
            print(json.dumps({}))
            return
        for padding, number in PADDINGS.items():
            for name, text in TEXTS.items():
                fill = b" " if number == h5py.h5t.STR_SPACEPAD else b"\0"
                add_attribute(file, f"{padding} {name}", fixed(number, 6), text.ljust(6, fill))
        file.attrs["any length"] = "a text é"
        file["a data set"] = np.bytes_(b"\xfe!")
        file.create_dataset("colours", data=[0, 2, 1], dtype=h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 2}, basetype="i4"))
        file["w"] = np.arange(4, dtype="f4")
    with h5py.File(sys.argv[1]) as file:
        read = {f"@{name}": value for name, value in file.attrs.items()} | {"a data set": file["a data set"][()]}
        texts = {key: value if isinstance(value, bytes) else value.encode() for key, value in read.items()}
        print(json.dumps({key: text.hex() for key, text in texts.items()}))


main()
