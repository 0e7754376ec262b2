"""Writes data sets under every filter that h5py has of its own: `hdf5_filters.py FILE`; prints (shape, dtype, SHA-256) of each as JSON."""
import hashlib
import json
import sys

import h5py
import numpy

FILTERS = {
    "gzip": {"compression": "gzip"}, "gzip9": {"compression": "gzip", "compression_opts": 9}, "lzf": {"compression": "lzf"},
    "fletcher32": {"fletcher32": True}, "shuffle": {"shuffle": True}, "shuffle_gzip": {"compression": "gzip", "shuffle": True},
    "shuffle_lzf": {"compression": "lzf", "shuffle": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True}, "all_lzf": {"compression": "lzf", "shuffle": True, "fletcher32": True}}


def values():
    noise = numpy.random.default_rng(1)
    smooth = numpy.arange(61 * 37).reshape(61, 37) // 5
    yield "smooth", smooth.astype("f4"), (16, 9)
    yield "big_endian", smooth.astype(">f8"), (16, 9)
    yield "zeros", numpy.zeros((61, 37), "f2"), (61, 37)
    yield "bytes", (smooth % 7).astype("u1"), (5, 3)  # chunks of an odd number of bytes
    # Nothing makes these smaller, so that optional filters are skipped.
    yield "noise", noise.integers(0, 255, (61, 37, 4), "u1").view("f4")[..., 0], (16, 9)
    yield "complex", (smooth + 1j * smooth).astype("c8"), (16, 9)
    yield "vector", noise.normal(size=100000).astype("f4").round(1), (30000,)


def main():
    expected = {}
    with h5py.File(sys.argv[1], "w") as file:
        for name, array, chunk in values():
            little = numpy.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
            account = [list(array.shape), str(little.dtype), hashlib.sha256(little.tobytes()).hexdigest()]
            for filters, options in FILTERS.items():
                file.create_dataset(f"{name}/{filters}", data=array, chunks=chunk, **options)
                expected[f"{name}/{filters}"] = account
    print(json.dumps(expected))


if __name__ == "__main__":
    main()
