"""Archives whose two directories, sizes, flags and ends disagree."""
import struct
import zlib

import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, HARMLESS, damaged, one_file, refused, warned, warning, without_tensors

group = Group("zip")
CASES = group.cases

PICKLE = p.dumps({"w": p.tensor()})
PAYLOAD = bytes(range(16))
FULL16, FULL32 = 0xFFFF, 0xFFFFFFFF


def entries():
    return z.torch_entries(PICKLE, {"0": PAYLOAD})


def changed(number, **fields):
    """The good archive with other fields in one entry: 0 data.pkl, 1 byteorder, 2 data/0, 3 version."""
    all_entries = entries()
    for name, value in fields.items():
        setattr(all_entries[number], name, value)
    return all_entries


def pt(data):
    return one_file("model.pt", data)


def archive(all_entries=None, **fields):
    return pt(z.archive(entries() if all_entries is None else all_entries, **fields))


def bad(message):
    return refused("bad_item", message, file="model.pt")


DISAGREE = "local header and central directory disagree about record archive/data/0"

# --- Local header against central directory.

group.add("local-name", "the local header has another name", archive(changed(2, local={"name": b"archive/data/1"})), bad(DISAGREE))
group.add("local-name-longer", "the local name is longer", archive(changed(2, local={"name": b"archive/data/00"})), bad(DISAGREE))
group.add("local-name-traversal", "the local name leaves the folder", archive(changed(2, local={"name": b"../../../../x"})), bad(DISAGREE))
group.add("local-method", "the local header says deflated", archive(changed(2, local={"method": 8})), bad(DISAGREE))
group.add("local-size", "the local header has another size", archive(changed(2, local={"size": 1 << 20, "packed": 1 << 20})), bad(DISAGREE))
group.add("local-packed-size", "the local header has another stored size", archive(changed(2, local={"packed": 3})), bad(DISAGREE))
group.add("local-crc", "the local header has another checksum", archive(changed(2, local={"crc": 1})), bad(DISAGREE))
group.add("local-encrypted", "only the local header says encrypted", archive(changed(2, local={"flags": 1})), bad(DISAGREE))
group.add("local-signature", "no local header where the directory points", archive(changed(2, local={"signature": b"PK\3\5"})),
          bad("record archive/data/0 has no local header"))
group.add("local-extra-too-long", "the local extra field reaches past the archive", archive(changed(3, local={"extra_size": 60000})),
          bad("record archive/version lies outside the archive"))
group.add("local-name-size-lie", "the local header's name length is 65535", archive(changed(3, local={"name_size": FULL16})),
          bad("disagree about record archive/version"))
group.add("local-without-sizes", "sizes and checksum of the local header come in a descriptor behind the data",
          archive(changed(2, flags=8, local={"crc": 0, "size": 0, "packed": 0},
                          descriptor=b"PK\7\x08" + struct.pack("<3I", zlib.crc32(PAYLOAD), 16, 16))), HARMLESS)
group.add("descriptor-lies", "the descriptor says something else; nobody needs it",
          archive(changed(2, flags=8, local={"crc": 0, "size": 0, "packed": 0}, descriptor=b"PK\7\x08" + b"\xff" * 12)), HARMLESS)

# --- Methods and flags.

deflated = zlib.compressobj(9, zlib.DEFLATED, -15)
DEFLATED = deflated.compress(PAYLOAD) + deflated.flush()
zeros = zlib.compressobj(9, zlib.DEFLATED, -15)
BOMB = zeros.compress(b"\0" * (64 << 20)) + zeros.flush()

group.add("deflated", "a compressed record", archive(changed(2, method=8, stored=DEFLATED)),
          refused("unsupported", "record archive/data/0 is compressed"))
group.add("deflate-bomb", "a compressed pickle that expands a thousandfold",
          archive([z.Entry(b"archive/data.pkl", b"\0" * (64 << 20), method=8, stored=BOMB, crc=0)]),
          refused("unsupported", "record archive/data.pkl is compressed"))
group.add("deflate-stored", "compressed bytes under method 0 and two sizes",
          archive(changed(2, stored=DEFLATED)), bad("two sizes for the stored record archive/data/0"))
for method in (1, 6, 9, 12, 14, 93, 95, 99, FULL16):
    group.add(f"method-{method}", f"compression method {method}", archive(changed(2, method=method)),
              refused("unsupported", "record archive/data/0 is compressed"))
for name, flags in {"encrypted": 1, "patched": 0x20, "strong": 0x41, "strong-alone": 0x40, "masked-headers": 0x2000}.items():
    group.add(f"flag-{name}", f"general purpose flags {flags:#x}", archive(changed(2, flags=flags)),
              refused("unsupported", "record archive/data/0 is encrypted"))

# --- Sizes and places.

group.add("size-past-end", "a record larger than the file", archive(changed(2, size=1 << 30, packed=1 << 30)),
          bad("record archive/data/0 lies outside the archive"))
group.add("size-sentinel-without-extra", "sizes of 2^32-1 without the zip64 field", archive(changed(2, size=FULL32, packed=FULL32)),
          bad("record archive/data/0 lies outside the archive"))
group.add("two-sizes", "stored and plain size differ without compression", archive(changed(2, size=1000)),
          bad("two sizes for the stored record archive/data/0"))
group.add("header-past-end", "the local header lies behind the end", archive(changed(2, at=1 << 30)),
          bad("record archive/data/0 lies outside the archive"))
group.add("header-in-directory", "the local header lies in the central directory", archive(changed(3, at=900)), bad("record archive/version"))
group.add("header-sentinel", "an offset of 2^32-1 without the zip64 field", archive(changed(2, at=FULL32)),
          bad("record archive/data/0 lies outside the archive"))


def overlapping():
    """Two entries of one local header: the quoted overlap of zip bombs."""
    all_entries = entries()
    data = z.archive(all_entries)
    at = data.index(b"PK\3\4", 40)  # of byteorder
    twin = z.Entry(b"archive/byteorder", b"little", at=at)
    body = data[:data.index(b"PK\1\2")]
    central, offset = b"", 0
    for entry in all_entries + [z.Entry(b"archive/byteorder2", b"little", at=at)]:
        central += z.central_entry(entry, offset, len(entry.data))
        offset += 30 + len(entry.name) + len(entry.data)
    return body + central + z.end_record(5, len(central), len(body)), twin


group.add("two-entries-one-header", "two names for one local header", pt(overlapping()[0]), bad("disagree about record archive/byteorder2"))


def nested_overlap():
    """The payload of one record holds the local header and payload of another."""
    inner = z.local_header(z.Entry(b"archive/data/1", PAYLOAD), 16) + PAYLOAD
    all_entries = entries() + [z.Entry(b"archive/data/2", inner)]
    data = z.archive(all_entries)
    at = data.index(inner)
    body = data[:data.index(b"PK\1\2")]
    central, offset = b"", 0
    for entry in all_entries:
        central += z.central_entry(entry, offset, len(entry.data))
        offset += 30 + len(entry.name) + len(entry.data)
    central += z.central_entry(z.Entry(b"archive/data/1", PAYLOAD), at, 16)
    return body + central + z.end_record(6, len(central), len(body))


group.add("overlap-nested", "a record inside the payload of another", pt(nested_overlap()),
          bad("records archive/data/2 and archive/data/1 overlap"))


def same_records(count):
    """`count` entries of the same name and header: the directory grows, the data do not."""
    data = z.archive([z.Entry(b"archive/data.pkl", PICKLE)])
    body = data[:data.index(b"PK\1\2")]
    central = z.central_entry(z.Entry(b"archive/data.pkl", PICKLE), 0, len(PICKLE)) * count
    return body + central + z.end_record(count, len(central), len(body))


group.add("duplicate-pickle", "data.pkl twice: scanners read the first, loaders the last",
          archive([z.Entry(b"archive/data.pkl", p.dumps({}))] + entries()), bad("record name occurs twice: archive/data.pkl"))
group.add("duplicate-storage", "a storage twice", archive(entries() + [z.Entry(b"archive/data/0", b"\1" * 16)]),
          bad("record name occurs twice: archive/data/0"))
group.add("duplicate-other-case", "data.pkl and Data.pkl: torch's reader takes them for one name",
          archive([z.Entry(b"archive/Data.pkl", p.dumps({}))] + entries()), bad("record name occurs twice: archive/data.pkl"))
group.add("byteorder-other-case", "a ByteOrder of big: torch's reader finds it and swaps, so it is found here",
          archive([e for e in entries() if e.name != b"archive/byteorder"] + [z.Entry(b"archive/ByteOrder", b"middle")]), bad("unknown byte order"))
group.add("duplicate-60000", "one record sixty thousand times", pt(same_records(60000)), bad("record name occurs twice: archive/data.pkl"))

# --- Extra fields.


def zip64_extra(*values, size=None):
    data = b"".join(struct.pack("<Q", v) for v in values)
    return struct.pack("<HH", 1, len(data) if size is None else size) + data


group.add("zip64-extra-too-short", "a zip64 field without the value that is asked for",
          archive(changed(2, size=FULL32, packed=FULL32, extra=zip64_extra(16))), bad("the zip64 field of a record is too short"))
group.add("zip64-extra-huge", "a zip64 size of 2^64-1",
          archive(changed(2, size=FULL32, packed=FULL32, extra=zip64_extra(2**64 - 1, 2**64 - 1))),
          bad("record archive/data/0 lies outside the archive"))
group.add("zip64-extra-offset-wraps", "an offset that wraps around when the header's size is added",
          archive(changed(2, at=FULL32, extra=zip64_extra(2**64 - 8))), bad("record archive/data/0 lies outside the archive"))
group.add("zip64-extra-past-entry", "an extra field that reaches outside its entry",
          archive(changed(2, size=FULL32, packed=FULL32, extra=zip64_extra(16, 16, size=500))),
          bad("a zip extra field reaches outside its entry"))
group.add("zip64-extra-unasked", "a zip64 field nobody asks for, with other sizes", archive(changed(2, extra=zip64_extra(1, 1))), HARMLESS)
group.add("zip64-extra-honest", "a zip64 field that says the truth",
          archive(changed(2, size=FULL32, packed=FULL32, extra=zip64_extra(16, 16))), HARMLESS)

# --- The end of the archive.

END = "no end record"
good = z.archive(entries())
group.add("no-end", "the end record is cut off", pt(good[:-22]), refused("truncated", "not a complete zip: no end record"))
group.add("cut-in-half", "half a file", pt(good[:len(good) // 2]), refused("truncated", "not a complete zip: no end record"))
group.add("only-magic", "four bytes", pt(b"PK\3\4"), refused("truncated", "not a complete zip: no end record"))
group.add("only-end", "an end record and nothing else", pt(b"PK\3\4" + z.end_record(0, 0, 4)), refused("incomplete", "no data.pkl"))
group.add("bytes-behind-end", "bytes behind the end record", pt(good + b"\0" * 100), refused("unsupported", "bytes follow the end of the zip"))
group.add("comment-too-long", "a comment length past the end", archive(comment_size=500), refused("truncated", "no end record"))
group.add("comment-honest", "a comment", archive(comment=b"made by hand"), HARMLESS)
group.add("comment-holds-end", "a comment that is an end record of another directory",
          archive(comment=z.end_record(1, 60, 0) + b"xx"), bad("two end records"))
group.add("comment-holds-end-exact", "a comment that ends in an empty end record",
          archive(comment=b"x" + z.end_record(0, 0, 0)), refused("bad_item", "the central directory does not end where"))
group.add("count-too-large", "more entries announced than there are", archive(count=9), bad("the central directory is too small for its entries"))
group.add("count-one-more", "one entry more than there is", archive(count=5), bad("the central directory ends inside an entry"))
group.add("count-too-small", "entries that the count hides", archive(count=3), bad("the central directory holds more than its entries"))
group.add("count-zero", "a directory that says it is empty", archive(count=0), bad("the central directory holds more than its entries"))
group.add("count-here-differs", "the two counts of the end record differ", archive(here=1), bad("the two entry counts of the zip differ"))
group.add("directory-past-end", "the directory lies behind the end", archive(offset=1 << 30), bad("the central directory lies outside the archive"))
group.add("directory-offset-wraps", "offset and size of the directory wrap around", archive(offset=FULL32, size=FULL32),
          bad("the central directory lies outside the archive"))
group.add("directory-too-small", "the directory's size cuts an entry", archive(size=100), bad("the central directory"))
group.add("directory-gap", "bytes between the directory and the end record: readers that count from the end look elsewhere",
          archive(gap=b"\0" * 8), bad("the central directory does not end where the end record begins"))
group.add("prepended", "a script in front; offsets count from the archive", pt(b"PK\3\4" + b"#" * 60 + good),
          bad("the central directory does not end where the end record begins"))
group.add("prepended-polyglot", "a shell script in front of an archive", pt(b"#!/bin/sh\ntouch x\n" + good), refused("unsupported", "not a torch.save file"))
group.add("split-archive", "disk 1 of a zip over several files", archive(disk=1), refused("unsupported", "a zip split over several files"))
group.add("split-archive-both", "disks 3 and 3", archive(disk=3, directory_disk=3), refused("unsupported", "a zip split over several files"))


def zip64(**fields):
    def end(count, size, offset, at):
        return z.zip64_end(fields.get("count", count), fields.get("size", size), fields.get("offset", offset), at=at,
                           **fields.get("more", {})) + z.end_record(
                               *fields.get("classic", (FULL16, FULL32, FULL32)))
    return archive(end=end)


group.add("zip64-honest", "the end records of a large archive", zip64(), HARMLESS)
group.add("zip64-disagree", "classic and zip64 end record disagree", zip64(classic=(1, FULL32, FULL32)), bad("the two end records of the zip disagree"))
group.add("zip64-count-huge", "2^64-1 entries", zip64(count=2**64 - 1), bad("the central directory is too small for its entries"))
group.add("zip64-size-huge", "a directory of 2^64-1 bytes", zip64(size=2**64 - 1), bad("the central directory lies outside the archive"))
group.add("zip64-offset-wraps", "a directory whose end wraps around", zip64(offset=2**64 - 100), bad("the central directory lies outside the archive"))
group.add("zip64-locator-past-end", "a locator that points behind the end", zip64(more={"locator_at": 2**63}), bad("the zip64 end record lies outside the archive"))
group.add("zip64-locator-elsewhere", "a locator that points at a local header", zip64(more={"locator_at": 0}), bad("zip64 end record"))
group.add("zip64-bad-signature", "no zip64 record where the locator points", zip64(more={"signature": b"PK\6\5"}), bad("no zip64 end record where its locator points"))

# --- Names.

NAMES = {
    "parent": b"archive/../../x", "absolute": b"/etc/passwd", "nul": b"archive/data/0\0x", "other-folder": b"other/x",
    "no-folder": b"loose",
}
for name, record in NAMES.items():
    group.add(f"name-{name}", f"a record named {record!r}", archive(entries() + [z.Entry(record, b"x")]),
              warned("unsafe_path", "a record's name leaves the archive's folder; it is ignored", file="model.pt"))
HARMLESS_NAMES = {"backslash": b"archive\\..\\x/y", "dots": b"archive/./x", "empty-part": b"archive//x", "colon": b"archive/C:x"}
for name, record in HARMLESS_NAMES.items():
    outcome = HARMLESS if record.startswith(b"archive/") else warned("unsafe_path", "a record's name leaves")
    group.add(f"name-{name}", f"a record named {record!r}, which nothing refers to", archive(entries() + [z.Entry(record, b"x")]), outcome)
group.add("name-first-parent", "the first record leaves the folder", archive([z.Entry(b"../x", b"x")] + entries()),
          warned("unsafe_path", "a record's name leaves"))
group.add("name-all-parent", "no record has a folder of its own",
          pt(z.archive(z.torch_entries(PICKLE, {"0": PAYLOAD}, folder=b".."))),
          refused("incomplete", "no data.pkl"))
group.add("name-escapes", "a record name with terminal escapes", archive(changed(2, name=b"archive/\x1b[2J", crc=1)),
          damaged("bad_item", "the record of storage \"0\" is missing", tensor="w"))
group.add("symlink-entry", "a record that unix calls a link", archive(entries() + [z.Entry(b"archive/link", b"/etc/passwd", attributes=0o120777 << 16)]), HARMLESS)
group.add("directory-entry", "a record that is a folder", archive(entries() + [z.Entry(b"archive/data/", b"", attributes=0x10)]), HARMLESS)
group.add("record-is-prefix", "a record named like the folder", archive(entries() + [z.Entry(b"archive/", b"")]), HARMLESS)

# --- Contents.

HELD = warning("unsupported", "an object holds numbers that are not tensors of the checkpoint", tensor="p")

group.add("pickle-crc", "the pickle does not match its checksum", archive(changed(0, crc=1)),
          refused("checksum", "CRC-32 of record archive/data.pkl differs"))
group.add("storage-crc", "a storage does not match its checksum", archive(changed(2, crc=1)),
          damaged("checksum", "CRC-32 of record archive/data/0 differs", tensor="w"))
group.add("storage-crc-hidden", "a storage that only an object of an unknown class uses does not match its checksum",
          archive([*z.torch_entries(p.dumps({"p": p.Inst(p.G("shop", "Pair"), args=(p.tensor(), 1))}), {"0": PAYLOAD})[:2],
                   z.Entry(b"archive/data/0", PAYLOAD, crc=1), z.Entry(b"archive/version", b"3\n")]),
          without_tensors(damaged("checksum", "CRC-32 of record archive/data/0 differs", also=(HELD,))))
group.add("byteorder-unknown", "a byte order nobody has", archive(changed(1, data=b"middle")), refused("bad_item", "unknown byte order"))
group.add("byteorder-large", "a byte order of a megabyte", archive(changed(1, data=b"little" * 200000)),
          refused("resource", "record byteorder is too large"))
group.add("no-pickle", "no data.pkl", archive(entries()[1:]), refused("incomplete", "no data.pkl"))
group.add("torchscript", "a TorchScript archive: code", archive(entries() + [z.Entry(b"archive/constants.pkl", b"\x80\2).")]),
          refused("unsupported", "a TorchScript archive"))
group.add("empty-pickle", "a data.pkl of no bytes", archive(changed(0, data=b"")), refused("bad_metadata", "an empty file where a pickle is expected"))
group.add("nested-zip", "a zip in the place of the pickle", archive(changed(0, data=good)), refused("unsupported", "opcode PERSID"))
group.add("many-records", "sixty thousand empty records", pt(lambda: z.archive(
    entries() + [z.Entry(b"archive/data/%d" % i) for i in range(1, 60000)])), HARMLESS)
