"""HDF5 files: superblocks, object headers, groups, chunk trees, names of other files. All are goldens with a few other bytes."""
import pathlib
import shutil
import struct

from corpus_case import Group, damaged, one_file, refused, warned

group = Group("hdf5")
CASES = group.cases
GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "golden" / "hdf5"
OLD = (GOLDENS / "parts_earliest.h5").read_bytes()  # p [10, 10], contiguous; q [8, 5] in chunks of [3, 2]
NEW = (GOLDENS / "parts_latest.h5").read_bytes()  # the same, with checksums
VIRTUAL = (GOLDENS / "virtual_earliest.h5").read_bytes()


def u64(number):
    return struct.pack("<Q", number)


def put(data, at, new):
    return data[:at] + new + data[at + len(new):]


def reshape(data, at, *dims):
    """With another shape, which may be no larger than what it may grow to."""
    new = b"".join(map(u64, dims))
    return put(put(data, at, new), at + 16, new)


def swap(data, old, new):
    assert data.count(old) >= 1 and len(old) == len(new), (old, data.count(old))
    return data.replace(old, new, 1)


def h5(data):
    return one_file("model.h5", data)


def bad(kind, message, tensor=None):
    return refused(kind, message, tensor=tensor, file="model.h5")


GROUP_TREE = OLD.index(b"TREE\0")
CHUNK_TREE = OLD.index(b"TREE\1")
LEAF = OLD.index(b"SNOD")
HEAP = OLD.index(b"HEAP")
P_SPACE = OLD.index(u64(10) + u64(10))
Q_SPACE = OLD.index(u64(8) + u64(5))

# --- The superblock.

group.add("signature-alone", "nothing behind the signature", h5(OLD[:8]), bad("out_of_range", "a block of the structure lies outside the file"))
group.add("superblock-version", "a superblock of version 9", h5(put(OLD, 8, b"\x09")), bad("unsupported", "a superblock of version 9"))
group.add("offset-bytes", "offsets of four bytes", h5(put(OLD, 13, b"\x04")), bad("unsupported", "offsets or lengths of other than eight bytes"))
group.add("base-address", "addresses that count from elsewhere", h5(put(OLD, 24, u64(512))), bad("bad_metadata", "the superblock says that it lies elsewhere"))
group.add("end-past-file", "an end of the file past its end", h5(put(OLD, 40, u64(1 << 40))), bad("truncated", "the file is shorter than its superblock says"))
group.add("driver", "a file that asks for a driver", h5(put(OLD, 48, u64(96))), bad("unsupported", "a file that needs a driver"))
group.add("root-past-file", "a root group past the end", h5(put(OLD, 64, u64(1 << 60))), bad("out_of_range", "a block of the structure lies outside the file"))
group.add("root-in-data", "a root group in the middle of elements", h5(put(OLD, 64, u64(len(OLD) - 64))), bad("bad_metadata", "no object header where one is announced"))
group.add("cut", "the first half of a file", h5(OLD[:len(OLD) // 2]), bad("truncated", "the file is shorter than its superblock says"))
group.add("superblock-checksum", "a superblock whose checksum is wrong", h5(put(NEW, 30, b"\xff")), bad("checksum", "the checksum of a block of the structure differs"))
group.add("header-checksum", "an object header whose checksum is wrong", h5(put(NEW, NEW.index(b"OHDR") + 9, b"\xff")), bad("checksum", "the checksum of a block of the structure differs"))

# --- Groups.

group.add("group-tree-circle", "a tree of links that is its own child", h5(put(put(OLD, GROUP_TREE + 5, b"\x01"), GROUP_TREE + 32, u64(GROUP_TREE))), bad("bad_metadata", "a tree of links goes in a circle"))
group.add("group-tree-count", "a node with 65535 children", h5(put(OLD, GROUP_TREE + 6, b"\xff\xff")), bad("out_of_range", "a block of the structure lies outside the file"))
group.add("group-circle", "a group that contains the root", h5(put(OLD, LEAF + 16, OLD[64:72])), warned("unsupported", "a second link to one group is not followed", tensor="p", file="model.h5"))
group.add("heap-past-file", "names past the end of the file", h5(put(OLD, HEAP + 24, u64(1 << 50))), bad("out_of_range", "a block of the structure lies outside the file"))
group.add("heap-size", "a heap of 2^63 bytes", h5(put(OLD, HEAP + 8, u64(1 << 63))), bad("out_of_range", "a block of the structure lies outside the file"))
group.add("name-past-heap", "a name outside its heap", h5(put(OLD, LEAF + 8, u64(1 << 40))), bad("bad_metadata", "a name lies outside its heap"))
group.add("name-twice", "two data sets of one name", h5(swap(OLD, b"p\0\0\0\0\0\0\0q", b"q\0\0\0\0\0\0\0q")), bad("bad_metadata", "two links of a group have one name"))
group.add("name-slash", "a name that climbs", h5(swap(OLD, b"p\0\0\0\0\0\0\0q", b"../p\0\0\0\0q")), bad("bad_metadata", "a link has no possible name"))

# --- Data sets.

group.add("shape-overflow", "2^63 rows", h5(reshape(OLD, P_SPACE, (1 << 63) - 1)), damaged("resource", "overflow", tensor="p"))
group.add("shape-past-file", "more rows than bytes", h5(reshape(OLD, P_SPACE, 1 << 30)), damaged("size_mismatch", "fewer bytes are stored than the data set needs", tensor="p"))
group.add("shape-negative", "2^64-1 rows", h5(put(OLD, P_SPACE, u64((1 << 64) - 1))), damaged("bad_metadata", "a dim past 63 bits", tensor="p"))
group.add("chunk-tree-circle", "a tree of chunks that is its own child", h5(put(put(OLD, CHUNK_TREE + 5, b"\x01"), CHUNK_TREE + 24 + 32, u64(CHUNK_TREE))), damaged("bad_metadata", "a tree of chunks goes in a circle", tensor="q"))
group.add("chunk-off-grid", "a chunk off the grid", h5(put(OLD, CHUNK_TREE + 24 + 8, u64(1))), damaged("bad_metadata", "a chunk does not lie on the grid of its data set", tensor="q"))
group.add("chunk-size", "a chunk of another size", h5(put(OLD, CHUNK_TREE + 24, b"\x01")), damaged("bad_metadata", "a chunk does not have the size of chunks", tensor="q"))
group.add("chunk-past-file", "a chunk past the end of the file", h5(put(OLD, CHUNK_TREE + 24 + 32, u64(1 << 40))), damaged("out_of_range", "outside", tensor="q"))
group.add("fill-bomb", "a few chunks of an exabyte", h5(reshape(OLD, Q_SPACE, 1 << 40, 1 << 17)), damaged("resource", "", tensor="q"))


# --- Names of other files.

def beside(data):
    """A virtual file with all that it names."""
    def write(folder):
        for name in ("parts_earliest.h5", "raw.bin"):
            shutil.copy(GOLDENS / name, folder / name)
        path = folder / "model.h5"
        path.write_bytes(data)
        return path
    return write


group.add("external-password-file", "elements that are a file of the machine", beside(swap(VIRTUAL, b"raw.bin", b"/etc/pw")), damaged("unsafe_path", "not named as weights are", tensor="external"))
group.add("external-climbs", "elements in a folder above", beside(swap(VIRTUAL, b"raw.bin", b"../../x")), damaged("unsafe_path", "not named as weights are", tensor="external"))
