"""Writes an HDF5 file behind a block as MATLAB's, and prints what h5py reads in it: hdf5_user_block.py FILE VERSION BLOCK_BYTES.

One JSON object: {key: [shape, dtype, sha256]}. VERSION: "earliest" or "latest".
"""
import hashlib
import json
import sys

import h5py
import numpy as np

path, version, block = sys.argv[1], sys.argv[2], int(sys.argv[3])
with h5py.File(path, "w", userblock_size=block, libver=version) as file:
    file["rows"] = np.arange(12.0).reshape(3, 4)
    file.create_dataset("packed", data=np.arange(100), chunks=(7,), compression="gzip", shuffle=True)
    file.create_dataset("in/chunks", data=np.arange(50, dtype="i2").reshape(5, 10), chunks=(2, 3))
    file.create_dataset("never", shape=(4, 4), chunks=(2, 2), dtype="f4", fillvalue=1.5)
    file["texts"] = ["a", "bcd"]
    file["word"] = "alone"
    file.attrs["name"] = "a text"
    for i in range(40):
        file[f"many/{i}"] = np.float32(i)
with open(path, "r+b") as file:
    file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(block))

account = {}
with h5py.File(path) as file:
    def note(key, item):
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "iuf":
            array = np.asarray(item[()])
            account[key] = [list(array.shape), str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()]
    file.visititems(note)
print(json.dumps(account))
