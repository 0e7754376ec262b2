"""Prints what h5py reads in the groups of HDF5 files of ours: hdf5_read.py FILE [FILE ...].

One JSON object: {FILE: {"tensors": {key: {"shape", "dtype", "sha256"}}, "objects": {key: value}, "kinds": {key: numpy's kind},
"checksums": {path of a data set with bytes of its own: whether its crc32 is theirs}, "others": [paths with a crc32 and no bytes]}}.
"""
import hashlib
import json
import sys
import zlib

import h5py
import hdf5plugin  # noqa: F401  (registers the filters)
import numpy as np


def checksums(path, file):
    found, others = {}, []

    def add(name, item):
        if not isinstance(item, h5py.Dataset):
            return
        at, size = item.id.get_offset(), item.id.get_storage_size()
        stated = item.attrs.get("crc32")
        if at is None or size == 0 or item.external:
            if stated is not None:
                others.append(name)
            return
        with open(path, "rb") as raw:
            raw.seek(at)
            found[name] = isinstance(stated, np.uint32) and zlib.crc32(raw.read(size)) == int(stated)

    file.visititems(add)
    return {"checksums": found, "others": others}


def read(path):
    tensors, kinds = {}, {}
    with h5py.File(path) as file:
        for item in file.get("tensors", {}).values():
            array = np.asarray(item[()])
            key = item.attrs["key"]
            tensors[key] = {"shape": list(array.shape), "dtype": item.attrs["dtype"],
                            "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
            kinds[key] = array.dtype.kind + str(array.dtype.itemsize)
        objects = {item.attrs["key"]: json.loads(item[()]) for item in file.get("objects", {}).values()}
        return {"tensors": tensors, "objects": objects, "kinds": kinds, **checksums(path, file)}


print(json.dumps({path: read(path) for path in sys.argv[1:]}))
