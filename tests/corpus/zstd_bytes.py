"""zstd frames by hand (RFC 8878): raw and RLE blocks need no compressor."""
import struct

MAGIC = struct.pack("<I", 0xFD2FB528)
RAW, RLE, COMPRESSED, RESERVED = range(4)


def block(kind, data, *, size=None, last=True):
    number = len(data) if size is None else size
    return struct.pack("<I", int(last) | kind << 1 | number << 3)[:3] + data


def header(content_size=None, *, single_segment=True, window=None, checksum=False, dictionary=None, reserved=False,
           size_bytes=8):
    """Frame header; `content_size` takes `size_bytes` (8, 4 or 1)."""
    if content_size is None:
        single_segment = False
    code = {8: 3, 4: 2, 1: 0}[size_bytes] if content_size is not None else 0
    descriptor = code << 6 | single_segment << 5 | reserved << 3 | checksum << 2 | (3 if dictionary is not None else 0)
    out = MAGIC + bytes([descriptor])
    if not single_segment:
        out += bytes([(window if window is not None else 17) - 10 << 3])
    if dictionary is not None:
        out += struct.pack("<I", dictionary)
    if content_size is not None:
        out += content_size.to_bytes(size_bytes, "little")
    return out


def frame(data, **options):
    """An honest frame of raw blocks."""
    blocks = [data[i:i + 131072] for i in range(0, len(data), 131072)] or [b""]
    return header(len(data), **options) + b"".join(
        block(RAW, b, last=i == len(blocks) - 1) for i, b in enumerate(blocks))


def bomb(output_bytes, **options):
    """RLE blocks of 128 KiB, four bytes each."""
    count = -(-output_bytes // 131072)
    return header(output_bytes, **options) + b"".join(
        block(RLE, b"\0", size=131072, last=i == count - 1) for i in range(count))


def skippable(data, *, size=None):
    return struct.pack("<II", 0x184D2A50, len(data) if size is None else size) + data
