"""Shapes, strides, offsets and counts that overflow, wrap or lie, in all three formats."""
import dcp_bytes as d
import pickle_bytes as p
import safetensors_bytes as s
import zip_bytes as z
from corpus_case import Group, HARMLESS, damaged, error, not_understood, one_file, refused

group = Group("shapes")
CASES = group.cases
ZEROS = b"\0" * 16
MAX63 = 2**63 - 1
ITEM = len(d.item())


# --- safetensors.

def st(name, attack, entry, outcome, payload=ZEROS):
    group.add(f"safetensors-{name}", attack, one_file("model.safetensors", s.file({"w": entry}, payload)), outcome)


def bad(kind, message):
    return refused(kind, message, tensor="w", file="model.safetensors")


COUNT = "the number of elements overflows 63 bits"
st("product-wraps-to-4", "2^62+1 times 4 is 4 in 64 bits", s.entry((2**62 + 1, 4)), bad("resource", COUNT))
st("product-wraps-to-0", "2^32 times 2^32 is 0 in 64 bits", s.entry((2**32, 2**32), offsets=(0, 0)), bad("resource", COUNT))
st("bytes-wrap", "2^62 floats are 0 bytes in 64 bits", s.entry((2**62,), offsets=(0, 0)), bad("resource", "the bit size overflows"))
st("bits-wrap", "2^60 bytes times 8 wrap", s.entry((2**61,), "F64", offsets=(0, 0)), bad("resource", "the bit size overflows"))
st("dim-2^63", "a dim of 2^63", s.entry((2**63,)), bad("bad_metadata", "JSON number does not fit 63 bits"))
st("dim-2^64", "a dim of 2^64", s.entry((2**64,)), bad("bad_metadata", "JSON number does not fit 64 bits"))
st("dim-2^64+4", "a dim of 2^64+4, which is 4", s.entry((2**64 + 4,)), bad("bad_metadata", "JSON number does not fit 64 bits"))
st("dim-max", "a dim of 2^63-1", s.entry((MAX63,)), bad("resource", "the bit size overflows"))
st("dim-negative", "a negative dim", s.entry((-4,)), bad("bad_metadata", "negative size"))
st("two-negatives", "two negative dims, whose product is positive", s.entry((-2, -2)), bad("bad_metadata", "negative size"))
group.add("safetensors-minus-zero", "a dim of -0", one_file("model.safetensors", s.one('{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}', b"")),
          bad("bad_metadata", "negative size"))
st("zero-hides-overflow", "a product that overflows before a zero", s.entry((2**62, 4, 0), offsets=(0, 0)),
   bad("resource", "the number of elements overflows 64 bits"), b"")
st("end-2^64-1", "an extent up to 2^64-1", s.entry(offsets=(0, 2**64 - 1)), bad("size_mismatch", "extent and shape disagree"))
st("begin-wraps", "begin and end near 2^64", s.entry(offsets=(2**64 - 16, 2**64)), bad("bad_metadata", "JSON number does not fit 64 bits"))
st("begin-high", "an extent of the right size at 2^63", s.entry(offsets=(2**63, 2**63 + 16)), bad("bad_metadata", "bytes in front of a tensor belong to none"))
st("dims-64-of-2", "64 dims of two", s.entry((2,) * 64), bad("resource", COUNT))


# --- torch.save.

def pt(name, attack, tensor, outcome, storages=None):
    group.add(f"torch-{name}", attack, one_file("model.pt", z.torch_file(p.dumps({"w": tensor}), storages or {"0": ZEROS})), outcome)


OUTSIDE = damaged("size_mismatch", "the tensor reaches outside its storage", tensor="w", file="model.pt")
pt("size-too-large", "five floats in a storage of four", p.tensor((5,)), OUTSIDE)
pt("offset-too-large", "an offset of one with all four", p.tensor((4,), offset=1), OUTSIDE)
pt("offset-huge", "an offset of 2^62 floats", p.tensor((4,), offset=2**62), OUTSIDE)
pt("offset-wraps", "an offset whose byte count wraps to 0", p.tensor((4,), offset=2**62 - 4), OUTSIDE)
pt("offset-negative", "a negative offset", p.tensor((4,), offset=-4), damaged("bad_item", "the storage offset of a tensor is not a size", tensor="w"))
pt("offset-big", "an offset of 2^64", p.tensor((4,), offset=2**64), damaged("bad_item", "the storage offset of a tensor is not a size", tensor="w"))
pt("offset-bool", "an offset that is True", p.tensor((3,), offset=True), damaged("bad_item", "the storage offset of a tensor is not a size", tensor="w"))
pt("offset-float", "an offset that is a float", p.tensor((3,), offset=1.0), damaged("bad_item", "the storage offset of a tensor is not a size", tensor="w"))
pt("stride-wraps", "a stride whose product wraps", p.tensor((3, 2), stride=(2**63 - 1, 1)), OUTSIDE)
pt("stride-too-large", "a stride past the end", p.tensor((2, 2), stride=(4, 1)), OUTSIDE)
pt("stride-negative", "a negative stride", p.tensor((4,), stride=(-1,), offset=3), damaged("bad_item", "the stride of a tensor holds something else than sizes", tensor="w"))
pt("stride-missing", "one stride for two dims", p.tensor((2, 2), stride=(1,)), damaged("bad_item", "size and stride of a tensor differ in length", tensor="w"))
pt("stride-no-tuple", "a stride that is a number", p.tensor((4,), stride=1), damaged("bad_item", "the stride of a tensor is not a tuple", tensor="w"))
pt("size-negative", "a negative size", p.tensor((-4,)), damaged("bad_item", "the size of a tensor holds something else than sizes", tensor="w"))
pt("size-product-wraps", "2^32 times 2^32 with strides of zero", p.tensor((2**32, 2**32), stride=(0, 0)), damaged("resource", COUNT, tensor="w"))
pt("size-bytes-wrap", "2^62 floats with strides of zero", p.tensor((2**62,), stride=(0,)), damaged("resource", "the byte size overflows 63 bits", tensor="w"))
pt("repeat-tera", "four bytes that claim to be a tera of elements", p.tensor((2**40,), stride=(0,)),
   damaged("resource", "the storage is far too small for its tensor", tensor="w"))
group.add("torch-repeat-giga-by-thousand", "a thousand tensors that repeat one float to a GiB: 100 KB ask for a tera of work",
          one_file("model.pt", z.torch_file(p.dumps({f"w{i}": p.tensor((2**28,), stride=(0,)) for i in range(1000)}), {"0": ZEROS})),
          refused("resource", "the file is far too small for its tensors", file="model.pt"))
pt("empty-at-2^62", "no elements at a far offset", p.tensor((0,), offset=2**62), HARMLESS)
pt("numel-lies-high", "the storage says it has more elements than its record", p.tensor((4,), elements=1000),
   damaged("size_mismatch", "the storage has another size than its reference says", tensor="w"))
pt("numel-lies-low", "the storage says it has fewer elements than its record", p.tensor((4,), elements=1),
   damaged("size_mismatch", "the storage has another size than its reference says", tensor="w"))
pt("numel-negative", "the storage says it has -4 elements", p.tensor((4,), elements=-4),
   damaged("bad_item", "a tensor is rebuilt from something that is not a storage", tensor="w"))
pt("dtype-wider", "doubles in a storage of four floats", p.tensor((4,), elements=2, cls="DoubleStorage"), OUTSIDE)
pt("record-empty", "a storage without bytes", p.tensor((4,), elements=0), OUTSIDE, {"0": b""})
pt("record-missing", "a storage that is not there", p.tensor((4,), key="7"), damaged("bad_item", 'the record of storage "7" is missing', tensor="w"))
pt("record-key-traversal", "a storage key that leaves the archive", p.tensor((4,), key="../../x"), damaged("bad_item", 'the record of storage "../../x" is missing', tensor="w"))

# --- .metadata.


def dcp(name, attack, outcome, *args, **options):
    group.add(f"dcp-{name}", attack, d.one_tensor(*args, **options), outcome)


def uncovered(kind, message):
    """Without its chunk the tensor has a hole."""
    return damaged(kind, message, tensor="w", also=(error("coverage", "no chunk holds a part of the tensor", tensor="w"),))


def described(shape, chunks=None, dtype="float32"):
    return d.described(shape, chunks, dtype)


dcp("size-product-wraps", "a tensor of 2^32 times 2^32", damaged("resource", COUNT, tensor="w"), described((2**32, 2**32)), offset=(0, 0))
dcp("size-bytes-wrap", "a tensor of 2^62 floats", damaged("resource", "the byte size overflows 63 bits", tensor="w"), described((2**62,)))
dcp("size-negative", "a tensor of -4 elements", damaged("bad_metadata", "negative size", tensor="w"), described((-4,)))
dcp("size-big", "a size past 64 bits", refused("bad_metadata", "size is not a list of integers", tensor="w"), described((2**64,)))
dcp("size-65-dims", "a tensor of 65 dims", refused("bad_metadata", "size is not a list of integers", tensor="w"), described((1,) * 65, [((0,), (1,))]))
dcp("chunk-outside", "a chunk past the end of its tensor", uncovered("out_of_range", "a chunk lies outside its tensor"), described((4,), [((2,), (4,))]), offset=(2,))
dcp("chunk-offset-wraps", "offset plus size wraps to 4", uncovered("out_of_range", "a chunk lies outside its tensor"), described((4,), [((MAX63,), (4,))]), offset=(MAX63,))
dcp("chunk-size-max", "a chunk of 2^63-1", uncovered("out_of_range", "a chunk lies outside its tensor"), described((4,), [((0,), (MAX63,))]))
dcp("chunk-negative-size", "a chunk of -4", uncovered("bad_metadata", "negative size of a chunk"), described((4,), [((0,), (-4,))]))
dcp("chunk-negative-offset", "a chunk at -4", uncovered("out_of_range", "negative offset of a chunk"), described((4,), [((-4,), (4,))]), offset=(-4,))
dcp("chunk-other-rank", "a chunk of two dims in a tensor of one", uncovered("bad_metadata", "a chunk has 2 dimensions, the tensor 1"), described((4,), [((0, 0), (2, 2))]), offset=(0, 0))
dcp("uncovered", "a chunk that leaves a part uncovered", damaged("coverage", "no chunk holds a part of the tensor", tensor="w"), described((8,), [((0,), (4,))]))
dcp("no-chunks", "a tensor without chunks", damaged("coverage", "no chunk holds a part of the tensor", tensor="w"), described((4,), []))
dcp("item-offset-past-end", "an item behind the end of its file", damaged("out_of_range", "an entry lies outside its file", tensor="w"), None, d.stored(2**40, ITEM))
dcp("item-offset-wraps", "offset plus length wraps", damaged("out_of_range", "an entry lies outside its file", tensor="w"), None, d.stored(MAX63, MAX63))
dcp("item-length-past-end", "an item longer than its file", damaged("truncated", "the file is shorter than its entries", tensor="w"), None, d.stored(0, 2**40))
dcp("item-offset-negative", "a negative offset", uncovered("out_of_range", "negative offset"), None, d.stored(-1, ITEM))
dcp("item-length-negative", "a negative length", uncovered("out_of_range", "negative length"), None, d.stored(0, -1))
dcp("item-offset-big", "an offset past 64 bits", uncovered("out_of_range", "offset is not a 64-bit integer"), None, d.stored(2**64, ITEM))
dcp("item-offset-float", "an offset that is not a number", uncovered("bad_metadata", "offset is not an integer"), None, d.stored(float("nan"), ITEM))
dcp("item-length-zero", "an item of no bytes", damaged("bad_item", "the item is empty", tensor="w"), None, d.stored(0, 0))
dcp("item-too-small", "a tera of floats in an item of one kilobyte", damaged("resource", "the item is far too small for its chunk", tensor="w"), described((2**40,)))


def many(count, shape, item, is_copied=False):
    """`count` tensors that are all the same item, or each a copy of it."""
    def make(folder):
        content = item()
        keys = [f"w{i}" for i in range(count)]
        step = len(content) if is_copied else 0
        storage = [(d.index(key, (0,)), d.stored(i * step, len(content))) for i, key in enumerate(keys)]
        return d.write(d.root([(key, described(shape)) for key in keys], storage), {d.FILE: content * (count if is_copied else 1)})(folder)
    return make


def all_damaged(message, count=1000):
    return damaged("resource", message, tensor="w0", also=tuple(error("resource", message, tensor=f"w{i}") for i in range(1, count)))


SHARED = "too many entries share the bytes of this file"
group.add("dcp-items-shared", "a few tensors that are one item", many(60, (4,), d.item), HARMLESS)
group.add("dcp-items-shared-by-thousand", "a thousand tensors that are one item of 16 MiB: 100 KB ask for 16 GiB of work", many(1000, (2**22,), lambda: d.item((2**22,), data=bytes(2**24))),
          all_damaged(SHARED))
group.add("dcp-items-repeat-giga", "a thousand items that repeat one float to a GiB: 1 MB asks for a tera of work",
          many(1000, (2**28,), lambda: d.item((2**28,), stride=(0,)), is_copied=True), all_damaged("the item is far too small for its chunk"))
dcp("item-shape-differs", "the item holds another shape", damaged("shape_mismatch", "the stored tensor's shape is not that of its chunk", tensor="w"), described((2, 2)), offset=(0, 0))
dcp("item-dtype-differs", "the item holds another dtype", damaged("dtype_mismatch", "the stored tensor's dtype is not that of the metadata", tensor="w"), described((4,), dtype="int32"))
dcp("dtype-unknown", "a dtype that torch has not", not_understood("unknown dtype", tensor="w"), described((4,), dtype="float7"))
