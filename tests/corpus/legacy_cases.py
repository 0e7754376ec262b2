"""torch.save streams of before 1.6: five pickles in a row, then counted storages."""
import struct

import pickle_bytes as p
from corpus_case import Group, HARMLESS, damaged, one_file, refused, warned, warning

group = Group("legacy")
CASES = group.cases

MAGIC = p.dumps(p.Raw(b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"))
PROTOCOL = p.dumps(1001)
SYSTEM = p.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}})
OBJECT = p.dumps({"w": p.tensor()})
KEYS = p.dumps(["0"])
STORAGE = struct.pack("<Q", 4) + b"\0" * 16


def stream(*, magic=MAGIC, protocol=PROTOCOL, system=SYSTEM, value=OBJECT, keys=KEYS, storages=STORAGE):
    return one_file("model.pt", magic + protocol + system + value + keys + storages)


def bad(kind, message):
    return refused(kind, message, file="model.pt")


BEHIND = warning("unsupported", "bytes follow the end of the stream")

group.add("honest", "an honest stream", stream(), HARMLESS)
group.add("other-magic", "another magic number", stream(magic=p.dumps(1)), bad("unsupported", "a plain pickle"))
group.add("other-protocol", "protocol 1002", stream(protocol=p.dumps(1002)), bad("unsupported", "a legacy torch.save stream of another protocol"))
group.add("protocol-calls", "the protocol number is a call", stream(protocol=p.dumps(p.Call(p.G("os", "system"), ("x",)))), bad("unsupported", "a legacy torch.save stream of another protocol"))
group.add("system-list", "the writer's system is a list", stream(system=p.dumps([])), bad("bad_item", "the description of the writing system is not a dict"))
group.add("object-calls", "the object is a call", stream(value=p.dumps({"w": p.tensor(), "x": p.Call(p.G("os", "system"), ("x",))})), warned("unsafe_pickle", "calls os.system", tensor="x"))


def module_id(cls):
    """What the class of an nn.Module is where it comes first."""
    return p.Pers(("module", cls, "linear.py", "class Linear(Module): ..."))


LINEAR = p.G("torch.nn.modules.linear", "Linear")
group.add("module", "no attack: a module, whose class is a persistent id", stream(value=p.dumps({"m": p.Inst(module_id(LINEAR), {"_parameters": {"w": p.tensor()}, "_buffers": {}, "_modules": {}})})), HARMLESS)
group.add("module-called", "the class of a module is called, and is os.system", stream(value=p.dumps({"w": p.tensor(), "x": p.Call(module_id(p.G("os", "system")), ("x",))})),
          warned("unsafe_pickle", "calls os.system", tensor="x"))
group.add("module-number", "the class of a module is a number", stream(value=p.dumps({"w": p.tensor(), "x": p.Inst(module_id(1), {})})), bad("bad_metadata", "an instance of something that is not a class"))
group.add("module-elsewhere", "the storage keys are the class of a module", stream(keys=p.dumps(module_id(LINEAR))), bad("bad_item", "the list of storage keys is not a list"))
group.add("keys-text", "the storage keys are a text", stream(keys=p.dumps("0")), bad("bad_item", "the list of storage keys is not a list"))
group.add("keys-number", "a storage key is a number", stream(keys=p.dumps([0])), bad("bad_item", "a storage key is not text"))
group.add("keys-twice", "a storage key twice", stream(keys=p.dumps(["0", "0"]), storages=STORAGE * 2), bad("bad_item", "occurs twice"))
group.add("key-unknown", "a storage nobody refers to", stream(keys=p.dumps(["0", "9"]), storages=STORAGE * 2), bad("bad_item", "no tensor says what storage"))
group.add("key-missing", "a storage that is not listed", stream(keys=p.dumps([]), storages=b""), damaged("bad_item", "the record of storage \"0\" is missing", tensor="w"))
group.add("keys-call", "the storage keys are a call", stream(keys=p.dumps(p.Call(p.G("os", "system"), ("x",)))), bad("bad_item", "the list of storage keys is not a list"))
group.add("count-huge", "a storage of 2^64-1 elements", stream(storages=struct.pack("<Q", 2**64 - 1)), bad("resource", "announces more than the whole file"))
group.add("count-wraps", "a count whose byte size wraps to 16", stream(storages=struct.pack("<Q", 2**62 + 4) + b"\0" * 16), bad("resource", "announces more than the whole file"))
group.add("count-too-large", "one element more than there is", stream(storages=struct.pack("<Q", 5) + b"\0" * 16), bad("truncated", "end early"))
group.add("count-too-small", "a count that leaves bytes behind", stream(storages=struct.pack("<Q", 3) + b"\0" * 16), damaged("size_mismatch", "the storage has another size than its reference says", tensor="w", also=(BEHIND,)))
group.add("bytes-behind", "bytes behind the last storage", stream(storages=STORAGE + b"\0" * 100), warned("unsupported", BEHIND.message))
group.add("second-save", "a second stream behind the first", stream(storages=STORAGE + MAGIC + PROTOCOL + SYSTEM + OBJECT + KEYS + STORAGE), warned("unsupported", BEHIND.message))
group.add("no-storages", "the file ends in front of the storages", stream(storages=b""), bad("truncated", "the file ends before storage"))
group.add("cut-count", "the file ends inside a count", stream(storages=b"\4\0\0"), bad("truncated", "the file ends before storage"))
group.add("no-keys", "the file ends in front of the keys", one_file("model.pt", MAGIC + PROTOCOL + SYSTEM + OBJECT), bad("bad_metadata", "the file ends where a pickle is expected"))
group.add("only-magic", "the magic number alone", one_file("model.pt", MAGIC), bad("bad_metadata", "the file ends where a pickle is expected"))
group.add("cut-object", "the file ends inside the object", one_file("model.pt", MAGIC + PROTOCOL + SYSTEM + OBJECT[:40]), bad("bad_metadata", "ends early"))
group.add("view-outside", "a view past the end of its storage", stream(value=p.dumps({"w": p.Call(p.G("torch._utils", "_rebuild_tensor_v2"), (
    p.Pers(("storage", p.G("torch", "FloatStorage"), "0", "cpu", 4, ("1", 2, 4))), 0, (4,), (1,), False, p.ORDERED))})),
    damaged("size_mismatch", "a view reaches outside its storage", tensor="w"))
group.add("view-wraps", "a view whose offset wraps", stream(value=p.dumps({"w": p.Call(p.G("torch._utils", "_rebuild_tensor_v2"), (
    p.Pers(("storage", p.G("torch", "FloatStorage"), "0", "cpu", 4, ("1", 2**62, 4))), 0, (4,), (1,), False, p.ORDERED))})),
    damaged("size_mismatch", "a view reaches outside its storage", tensor="w"))
group.add("two-classes", "one storage under two classes: the first decides its size", stream(value=p.dumps(
    {"a": p.tensor((4,), cls="FloatStorage"), "w": p.tensor((2,), elements=2, cls="DoubleStorage")})), HARMLESS)
group.add("tar", "a tar archive of before 0.1.10", one_file("model.pt", b"sys".ljust(257, b"\0") + b"ustar" + b"\0" * 300), bad("unsupported", "a tar archive"))
group.add("plain-pickle", "a pickle that torch did not write", one_file("model.pt", p.dumps({"w": 1})), bad("unsupported", "a plain pickle"))
