"""Zip archives of which every field can lie."""
import dataclasses
import struct
import typing
import zlib


@dataclasses.dataclass
class Entry:
    name: bytes
    data: bytes = b""
    method: int = 0
    flags: int = 0
    stored: typing.Optional[bytes] = None  # the bytes behind the local header, if not `data`
    crc: typing.Optional[int] = None
    size: typing.Optional[int] = None      # uncompressed, in the central directory
    packed: typing.Optional[int] = None    # compressed, in the central directory
    at: typing.Optional[int] = None        # where the central directory says the local header is
    extra: bytes = b""                     # of the central directory
    attributes: int = 0
    local: dict = dataclasses.field(default_factory=dict)  # name, method, flags, crc, size, packed, extra, signature
    descriptor: bytes = b""


def local_header(entry, packed):
    get = entry.local.get
    crc = zlib.crc32(entry.data) if entry.crc is None else entry.crc
    name = get("name", entry.name)
    extra = get("extra", b"")
    return get("signature", b"PK\3\4") + struct.pack(
        "<5H3I2H", 20, get("flags", entry.flags), get("method", entry.method), 0, 0, get("crc", crc),
        get("packed", packed), get("size", len(entry.data)), get("name_size", len(name)),
        get("extra_size", len(extra))) + name + extra


def central_entry(entry, at, packed):
    crc = zlib.crc32(entry.data) if entry.crc is None else entry.crc
    size = len(entry.data) if entry.size is None else entry.size
    return b"PK\1\2" + struct.pack(
        "<6H3I5H2I", 0x314, 20, entry.flags, entry.method, 0, 0, crc, packed if entry.packed is None else entry.packed,
        size, len(entry.name), len(entry.extra), 0, 0, 0, entry.attributes, at if entry.at is None else entry.at
    ) + entry.name + entry.extra


def end_record(count, size, offset, *, comment=b"", disk=0, directory_disk=0, here=None, comment_size=None):
    return b"PK\5\6" + struct.pack("<4H2IH", disk, directory_disk, count if here is None else here, count, size, offset,
                                   len(comment) if comment_size is None else comment_size) + comment


def zip64_end(count, size, offset, *, at, signature=b"PK\6\6", locator_at=None, disks=1):
    record = signature + struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, count, count, size, offset)
    return record + b"PK\6\7" + struct.pack("<IQI", 0, at if locator_at is None else locator_at, disks)


def archive(entries, *, prefix=b"", gap=b"", end=None, **end_fields):
    """`end(count, size, offset, at)` makes what follows the directory; without it, an end record with `end_fields`."""
    body, central = prefix, b""
    for entry in entries:
        at = len(body)
        stored = entry.data if entry.stored is None else entry.stored
        body += local_header(entry, len(stored)) + stored + entry.descriptor
        central += central_entry(entry, at, len(stored))
    offset = len(body)
    whole = body + central + gap
    if end is not None:
        return whole + end(len(entries), len(central), offset, len(whole))
    fields = {"count": len(entries), "size": len(central), "offset": offset} | end_fields
    return whole + end_record(**fields)


def torch_entries(pickle, storages=None, *, folder=b"archive"):
    """The records of a torch.save file."""
    entries = [Entry(folder + b"/data.pkl", pickle), Entry(folder + b"/byteorder", b"little")]
    for key, data in (storages or {}).items():
        entries.append(Entry(folder + b"/data/" + key.encode(), data))
    return entries + [Entry(folder + b"/version", b"3\n")]


def torch_file(pickle, storages=None, **fields):
    return archive(torch_entries(pickle, storages), **fields)
