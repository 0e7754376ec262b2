"""Writes what h5py can make of data sets: `hdf5_filters.py FILE WHAT [LIBVER]`; prints (shape, dtype, SHA-256) of each as JSON.

WHAT is `filters` (every filter that h5py has of its own, and chains of several with zstd), `shapes` (chunks of data sets that may
grow, grew, or were made smaller), `virtual` (data sets that show others, with gaps, under odd names) or `odd` (what is no tensor).
"""
import hashlib
import itertools
import json
import pathlib
import random
import sys

import h5py
import hdf5plugin  # registers zstd
import numpy
from h5py import h5d, h5p, h5s, h5t

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


def create(group, name, shape, dtype=numpy.dtype("f4"), max_shape=None, settings=None):
    """A data set of the library's own settings, some of which h5py does not offer."""
    space = h5s.create_simple(shape, max_shape or shape)
    return h5py.Dataset(h5d.create(group.id, name.encode(), h5t.py_create(dtype), space, settings))


def fill_filters(file):
    for name, array, chunk in values():
        for filters, options in FILTERS.items():
            file.create_dataset(f"{name}/{filters}", data=array, chunks=chunk, **options)
    # Compressors of what another one packed, which they make larger.
    add = {"deflate": h5p.PropDCID.set_deflate, "shuffle": h5p.PropDCID.set_shuffle, "fletcher32": h5p.PropDCID.set_fletcher32,
           "zstd": lambda s: s.set_filter(hdf5plugin.Zstd.filter_id, 0, (1,)), "lzf": lambda s: s.set_filter(32000, h5py.h5z.FLAG_OPTIONAL)}
    noise = numpy.random.default_rng(2).integers(0, 255, (4, 9), "u1")
    group = file.create_group("chains")
    for count in (2, 3):
        for chain in itertools.permutations(add, count):
            settings = h5p.create(h5p.DATASET_CREATE)
            settings.set_chunk((2, 5))
            for filtering in chain:
                add[filtering](settings)
            create(group, "+".join(chain), noise.shape, noise.dtype, settings=settings)[...] = noise


def fill_shapes(file):
    draw = random.Random(3)
    for i in range(200):
        shape = tuple(draw.randint(1, 9) for _ in range(draw.choice([1, 2, 2, 3])))
        most = draw.choice([shape, tuple(size + draw.choice([0, 0, 1, 5]) for size in shape)])
        settings = h5p.create(h5p.DATASET_CREATE)
        settings.set_chunk(tuple(draw.randint(1, size) for size in most))
        if draw.random() < 0.5:  # chunks one behind the other
            settings.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        if draw.random() < 0.3:
            settings.set_fill_value(numpy.array(3, "f4"))
        if draw.random() < 0.3:
            settings.set_deflate(3)
        data_set = create(file, str(i), shape, max_shape=most, settings=settings)
        data_set[...] = numpy.arange(data_set.size).reshape(shape)
        if draw.random() < 0.3:
            data_set.resize(tuple(draw.randint(1, size) for size in shape))
        if draw.random() < 0.4:
            data_set.resize(tuple(draw.randint(size, limit) for size, limit in zip(data_set.shape, most)))
    paged = file.create_dataset("paged", data=numpy.arange(5000, dtype="i2"), chunks=(2,), maxshape=(9000,))
    paged.resize((4001,))


def fill_virtual(file):
    path = pathlib.Path(sys.argv[1])
    draw = random.Random(4)
    rows = numpy.arange(400, dtype="f4").reshape(20, 20) + 1
    shown = path.with_name(f"50%_{path.name}")
    with h5py.File(shown, "w") as source:
        source.create_dataset("plain", data=rows, maxshape=(None, 20))
        source.create_dataset("a%b", data=rows + 5)
        source.create_dataset("c/d%%", data=rows + 6, chunks=(3, 4))
        source.create_dataset("partial", shape=(20, 20), dtype="f4", chunks=(5, 5), fillvalue=4)[2:4, 2:4] = 9
    name = shown.name.replace("%", "%%")
    for i in range(60):  # tiles in any order, of which some are left out
        shape = (draw.randint(1, 20), draw.randint(1, 20))
        layout = h5py.VirtualLayout(shape, dtype="f4")
        cuts = [sorted({0, size, *(draw.randint(0, size) for _ in range(3))}) for size in shape]
        tiles = list(itertools.product(*(zip(at, at[1:]) for at in cuts)))
        draw.shuffle(tiles)
        for (top, bottom), (left, right) in tiles:
            if draw.random() < 0.4:
                continue
            y, x = draw.randint(0, 20 - (bottom - top)), draw.randint(0, 20 - (right - left))
            of = draw.choice(["plain", "a%b", "c/d%%", "partial"]).replace("%", "%%")
            layout[top:bottom, left:right] = h5py.VirtualSource(name, of, (20, 20))[y:y + bottom - top, x:x + right - left]
        file.create_virtual_dataset(str(i), layout, fillvalue=draw.choice([None, 7.5]))
    for skipped in (0, 5):  # all rows that the source has
        spaces = []
        for size, first in ((20 - skipped, 0), (20, skipped)):
            spaces.append(h5s.create_simple((size, 20), (h5s.UNLIMITED, 20)))
            spaces[-1].select_hyperslab((first, 0), (1, 1), block=(h5s.UNLIMITED, 20))
        settings = h5p.create(h5p.DATASET_CREATE)
        settings.set_virtual(spaces[0], name.encode(), b"plain", spaces[1])
        create(file, f"rows_from_{skipped}", (20 - skipped, 20), max_shape=(h5s.UNLIMITED, 20), settings=settings)


def fill_odd(file):
    rows = numpy.arange(12, dtype="f4").reshape(3, 4)
    file["a/b/rows"] = rows
    file["a/loop"] = file["a"]
    file["second"] = file["a/b"]
    file["type"] = numpy.dtype("i4")
    file["type"].attrs["about"] = "a type"
    file["text"] = "hello"
    file["text"].attrs["about"] = "a text"
    file["none"] = h5py.Empty("f4")
    file["none"].attrs["about"] = "nothing"
    file["pairs"] = numpy.zeros(3, [("weight", "f4"), ("n", "i4")])
    file["pairs"].attrs["about"] = "a compound"
    file["long"] = numpy.arange(3, dtype="g")
    file["x"] = rows
    file["x"].attrs["y"] = 1
    file["x@y"] = rows + 1
    file.attrs.create("committed", 3, dtype=file["type"])
    file.attrs["known"] = 4
    for i in range(20):
        file["long names"[i % 2:] + f"{i}" * 3000] = rows[:1] + i
    if sys.argv[3] == "latest":
        file.attrs["many"] = numpy.zeros(20000)


def account(array):
    little = numpy.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
    return [list(array.shape), str(little.dtype), hashlib.sha256(little.tobytes()).hexdigest()]


def main():
    path, what, *version = sys.argv[1:]
    fill = {"filters": fill_filters, "shapes": fill_shapes, "virtual": fill_virtual, "odd": fill_odd}[what]
    with h5py.File(path, "w", libver=version[0] if version else None) as file:
        fill(file)
    expected = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and item.shape is not None and item.dtype.kind in "fiuc" and item.dtype.itemsize <= 8:
            expected[name] = account(item[()])

    with h5py.File(path) as file:
        file.visititems(visit)
    print(json.dumps(expected))


if __name__ == "__main__":
    main()
