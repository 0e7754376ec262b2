"""Compressed items of a distributed checkpoint: frames that lie, explode or end early."""
import struct

import dcp_bytes as d
import zstd_bytes as zs
from corpus_case import Group, HARMLESS, damaged, error

group = Group("zstd")
CASES = group.cases
ITEM = d.item()
ZSTD = ["stream.zstd/1"]


def add(name, attack, stored, outcome, *, transforms=ZSTD, description=None, offset=(0,), **options):
    """A checkpoint of one compressed item; `stored`: its bytes, or a function that makes them."""
    def make(folder):
        data = stored() if callable(stored) else stored
        info = d.stored(0, len(data), transforms=transforms)
        return d.one_tensor(description, info, offset=offset, files={d.FILE: data})(folder)
    group.add(name, attack, make, outcome, **options)


def bad(kind, message):
    return damaged(kind, message, tensor="w", file=d.FILE)


FRAME = zs.frame(ITEM)
DAMAGED = "damaged zstd frame"
BOMB = "zstd data expand beyond the limit"

add("honest", "an honest frame", FRAME, HARMLESS)
add("honest-split", "the item in two frames and a skippable one", zs.frame(ITEM[:100]) + zs.skippable(b"x" * 9) + zs.frame(ITEM[100:]), HARMLESS)
add("bomb-honest-size", "RLE blocks that expand to 64 MiB, and say so", lambda: zs.bomb(64 << 20), bad("resource", BOMB))
add("bomb-no-size", "RLE blocks that expand to 64 MiB without a content size", lambda: zs.header() + zs.bomb(64 << 20)[13:], bad("resource", BOMB))
add("bomb-8-gib", "256 KiB that expand to 8 GiB", lambda: zs.bomb(8 << 30, single_segment=False), bad("resource", BOMB))
add("bomb-many-frames", "four thousand frames of 128 KiB each", lambda: zs.bomb(131072) * 4096, bad("resource", BOMB))
add("bomb-in-bomb", "two stages, the inner one a bomb", lambda: zs.frame(zs.bomb(1 << 30, single_segment=False)), bad("resource", BOMB), transforms=ZSTD * 2)
add("bomb-outer", "two stages, the outer one a bomb", lambda: zs.bomb(1 << 30, single_segment=False), bad("resource", BOMB), transforms=ZSTD * 2)
add("bomb-large-tensor", "a bomb behind a tensor that claims 8 GiB", lambda: zs.bomb(8 << 30, single_segment=False), damaged("system", "out of memory"),
    description=d.described((1 << 31,)))
add("bomb-claimed-tera", "a small frame behind a tensor that claims a tera", FRAME, bad("resource", "the item is far too small for its chunk"),
    description=d.described((1 << 40,)))
add("content-size-too-large", "a content size of 2^60", zs.header(2**60, single_segment=False) + zs.block(zs.RAW, ITEM), bad("bad_item", DAMAGED))
add("content-size-too-small", "a content size of one byte", zs.header(1) + zs.block(zs.RAW, ITEM), bad("bad_item", DAMAGED))
add("single-segment-2^40", "a window as large as a content of 2^40", zs.header(2**40) + zs.block(zs.RAW, ITEM), bad("resource", "a zstd frame asks for too large a window"))
add("window-log-31", "a window of 2 GiB", zs.header(window=31) + zs.block(zs.RAW, ITEM), bad("resource", "a zstd frame asks for too large a window"))
add("window-log-41", "a window of 3.75 TiB", zs.header(window=41) + zs.block(zs.RAW, ITEM), bad("resource", "a zstd frame asks for too large a window"))
add("dictionary", "a frame that needs a dictionary", zs.header(len(ITEM), dictionary=7) + zs.block(zs.RAW, ITEM), bad("bad_item", DAMAGED))
add("reserved-bit", "a reserved bit of the header", zs.header(len(ITEM), reserved=True) + zs.block(zs.RAW, ITEM), bad("bad_item", DAMAGED))
add("reserved-block", "a block of the reserved type", zs.header(len(ITEM)) + zs.block(zs.RESERVED, ITEM), bad("bad_item", DAMAGED))
add("block-too-large", "a block of 2 MiB", zs.header(1 << 21, single_segment=False) + zs.block(zs.RLE, b"\0", size=(1 << 21) - 1), bad("bad_item", DAMAGED))
add("compressed-garbage", "a compressed block of random bytes", zs.header(len(ITEM)) + zs.block(zs.COMPRESSED, bytes(range(200))), bad("bad_item", DAMAGED))
add("compressed-empty", "a compressed block of no bytes", zs.header(len(ITEM)) + zs.block(zs.COMPRESSED, b""), bad("bad_item", DAMAGED))
add("no-last-block", "no block is the last", zs.header(len(ITEM)) + zs.block(zs.RAW, ITEM, last=False), bad("truncated", "the zstd frame is not complete"))
add("truncated-block", "a block that ends early", FRAME[:-10], bad("truncated", "the zstd frame is not complete"))
add("truncated-header", "five bytes of a frame", FRAME[:5], bad("truncated", "the zstd frame is not complete"))
add("magic-only", "a magic number", zs.MAGIC, bad("truncated", "the zstd frame is not complete"))
add("not-zstd", "an item that is not compressed", ITEM, bad("bad_item", "not a zstd frame"))
add("old-magic", "a frame of zstd 0.7", struct.pack("<I", 0xFD2FB527) + FRAME[4:], bad("bad_item", "not a zstd frame"))
add("checksum-wrong", "a frame whose checksum differs", zs.frame(ITEM, checksum=True) + b"\1\2\3\4", bad("checksum", "checksum of a zstd frame differs"))
add("checksum-missing", "a frame without its announced checksum", zs.frame(ITEM, checksum=True), bad("truncated", "the zstd frame is not complete"))
add("only-skippable", "nothing but a skippable frame", zs.skippable(b"x" * 100), bad("bad_item", "the item is empty"))
add("skippable-huge", "a skippable frame of 4 GiB", zs.skippable(b"x" * 100, size=2**32 - 1) + FRAME, bad("truncated", "the zstd frame is not complete"))
add("garbage-behind", "bytes behind the frame", FRAME + b"garbage", bad("bad_item", "not a zstd frame"))
add("second-frame", "a second frame behind the item", FRAME + FRAME, bad("bad_item", "the central directory"))
add("empty-frame", "a frame of no bytes", zs.frame(b""), bad("bad_item", "the item is empty"))
add("zeros", "a frame of zeros in the place of the item", zs.bomb(131072), bad("truncated", "not a complete zip"))
add("transform-unknown", "a transform nobody knows", FRAME, damaged("unsupported", "unknown transform", tensor="w", also=(
    error("coverage", "no chunk holds", tensor="w"),)), transforms=["stream.lzma/1"])
add("transform-version", "a version nobody knows", FRAME, damaged("unsupported", "unknown transform", tensor="w", also=(
    error("coverage", "no chunk holds", tensor="w"),)), transforms=["stream.zstd/2"])
add("transform-escapes", "a transform whose name holds terminal escapes", FRAME, damaged("unsupported", "unknown transform", tensor="w", also=(
    error("coverage", "no chunk holds", tensor="w"),)), transforms=["\x1b[2J"])
add("transform-many", "seventeen transforms", FRAME, damaged("bad_metadata", "transform_descriptors is not a short list of texts", tensor="w", also=(
    error("coverage", "no chunk holds", tensor="w"),)), transforms=ZSTD * 17)
add("transform-number", "a transform that is a number", FRAME, damaged("bad_metadata", "transform_descriptors is not a short list of texts", tensor="w", also=(
    error("coverage", "no chunk holds", tensor="w"),)), transforms=[1])
