"""Makes an HDF5 file of texts and an enumeration: hdf5_texts.py FILE [key]. Prints key -> hex of the bytes that h5py reads.

    key   the file has one data set instead, whose name is not UTF-8
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


def main():
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
