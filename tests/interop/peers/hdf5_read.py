"""Prints what h5py reads in the groups of HDF5 files of ours: hdf5_read.py FILE [FILE ...].

One JSON object: {FILE: {"tensors": {key: {"shape", "dtype", "sha256"}}, "objects": {key: value}, "kinds": {key: numpy's kind}}}.
"""
import hashlib
import json
import sys

import h5py
import hdf5plugin  # noqa: F401  (registers the filters)
import numpy as np


def read(path):
    tensors, kinds = {}, {}
    with h5py.File(path) as file:
        for item in file["tensors"].values():
            array = np.asarray(item[()])
            key = item.attrs["key"]
            tensors[key] = {"shape": list(array.shape), "dtype": item.attrs["dtype"],
                            "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
            kinds[key] = array.dtype.kind + str(array.dtype.itemsize)
        objects = {item.attrs["key"]: json.loads(item[()]) for item in file["objects"].values()}
    return {"tensors": tensors, "objects": objects, "kinds": kinds}


print(json.dumps({path: read(path) for path in sys.argv[1:]}))
