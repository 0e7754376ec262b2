"""Prints what h5py reads in the groups of a HDF5 file of ours: hdf5_read.py FILE.

One JSON object: {"tensors": {key: [shape, dtype, sha256]}, "objects": {key: value}, "kinds": {key: numpy's kind}}.
"""
import hashlib
import json
import sys

import h5py
import hdf5plugin  # noqa: F401  (registers the filters)
import numpy as np

with h5py.File(sys.argv[1]) as file:
    tensors, kinds = {}, {}
    for item in file["tensors"].values():
        array = np.asarray(item[()])
        tensors[item.attrs["key"]] = [list(array.shape), item.attrs["dtype"], hashlib.sha256(array.tobytes()).hexdigest()]
        kinds[item.attrs["key"]] = array.dtype.kind + str(array.dtype.itemsize)
    objects = {item.attrs["key"]: json.loads(item[()]) for item in file["objects"].values()}
print(json.dumps({"tensors": tensors, "objects": objects, "kinds": kinds}))
