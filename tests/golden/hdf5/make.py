#!/usr/bin/env python3
"""Writes the HDF5 goldens with h5py and hdf5plugin, and what is in them: make.py FOLDER.

Two of everything: as HDF5 1.8 wrote it (`earliest`) and as the library at hand writes it (`latest`).
"""
import hashlib
import json
import os
import sys

import h5py
import hdf5plugin
import numpy as np

NAMES = {"bool": "bool", "float16": "float16", "float32": "float32", "float64": "float64", "int16": "int16", "int32": "int32",
         "int64": "int64", "uint8": "uint8", "complex64": "complex64"}


def fill(file, libver):
    rng = np.random.default_rng(1)
    file["a"] = rng.standard_normal((3, 4)).astype("f4")
    file["a"].attrs["unit"] = "m"
    group = file.create_group("deep/er")
    group["f16"] = rng.standard_normal(7).astype("f2")
    group["i64"] = np.arange(-3, 9).reshape(3, 4)
    group["big_endian"] = np.arange(5, dtype=">i4")
    group["big_endian_float"] = np.arange(5, dtype=">f8")
    file["bool"] = np.array([True, False, True])
    file["c64"] = (np.arange(4) + 1j * np.arange(4, 8)).astype("c8")
    file["scalar"] = np.float32(3.5)
    file["empty"] = np.zeros((0, 4), "f4")
    file.create_dataset("chunked", data=np.arange(70, dtype="f4").reshape(10, 7), chunks=(4, 3))
    zstd = hdf5plugin.Zstd(clevel=3)
    file.create_dataset("zstd", data=np.arange(200, dtype="i4").reshape(20, 10), chunks=(16, 8), **zstd)
    file.create_dataset("shuffled", data=np.arange(200, dtype="i4").reshape(20, 10), chunks=(16, 8), shuffle=True, **zstd)
    file.create_dataset("one_chunk", data=np.arange(20.0).reshape(4, 5), chunks=(4, 5), **zstd)
    partial = file.create_dataset("partial", shape=(10, 10), dtype="i4", chunks=(5, 5), fillvalue=7)
    partial[:5, 5:] = 3
    file.create_dataset("never_written", shape=(3, 3), dtype="i4", fillvalue=9)
    file.create_dataset("compact", data=np.arange(4, dtype="u1"))
    if libver == "latest":  # an array of chunks in pages
        file.create_dataset("pages", data=np.arange(1100, dtype="i2").reshape(1100, 1), chunks=(1, 1))
    for i in range(20):
        file[f"many/{i}"] = np.full(2, i, "i2")
    for i in range(12):
        file["many"].attrs[f"n{i}"] = i
    file.attrs["text"] = "h\u00e9llo"
    file.attrs["numbers"] = np.array([1.5, np.nan])
    file.attrs["names"] = ["a", "bb"]
    file["words"] = ["x", "yy"]
    file["soft"] = h5py.SoftLink("/a")


def fill_virtual(file, parts):
    rows = h5py.VirtualLayout((12, 10), dtype="f8")
    rows[:10] = h5py.VirtualSource(parts, "p", (10, 10))
    rows[10:12, :5] = h5py.VirtualSource(parts, "q", (8, 5))[3:5]
    rows[10:12, 5:] = h5py.VirtualSource(parts, "q", (8, 5))[0:2]
    file.create_virtual_dataset("rows", rows)
    stacked = h5py.VirtualLayout((2, 10, 10), dtype="f8")
    for i in range(2):
        stacked[i] = h5py.VirtualSource(parts, "p", (10, 10))
    file.create_virtual_dataset("stacked", stacked)
    file.create_dataset("external", shape=(4, 3), dtype="f4", external=[("raw.bin", 8, 24), ("raw.bin", 64, 24)])


def describe(path):
    tensors = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and item.dtype.kind not in "OS":
            array = np.asarray(item[()])
            array = array.astype(array.dtype.newbyteorder("<"))
            tensors[name] = {"shape": list(array.shape), "dtype": NAMES[array.dtype.name],
                             "sha256": hashlib.sha256(array.tobytes()).hexdigest()}

    with h5py.File(path) as file:
        file.visititems(visit)
    return tensors


def main():
    os.chdir(sys.argv[1])
    np.arange(40, dtype="f4").tofile("raw.bin")
    expected = {}
    for libver in ("earliest", "latest"):
        with h5py.File(f"{libver}.h5", "w", libver=libver) as file:
            fill(file, libver)
        with h5py.File(f"parts_{libver}.h5", "w", libver=libver) as file:
            file["p"] = np.arange(100.0).reshape(10, 10)
            file.create_dataset("q", data=np.arange(40.0).reshape(8, 5), chunks=(3, 2))
        with h5py.File(f"virtual_{libver}.h5", "w", libver=libver) as file:
            fill_virtual(file, f"parts_{libver}.h5")
        for name in (f"{libver}.h5", f"virtual_{libver}.h5"):
            expected[name] = describe(name)
    with open("expected.json", "w", encoding="utf-8") as out:
        json.dump({"made_by": {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version}, "files": expected}, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
