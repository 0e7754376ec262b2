"""Pickles put together opcode by opcode: nothing here needs torch, and nothing is ever unpickled."""
import struct


class G:
    """GLOBAL: a class or function by name."""
    def __init__(self, module, name):
        self.module, self.name = module, name


class Call:
    """REDUCE, with BUILD where a state is given."""
    def __init__(self, function, args=(), state=None):
        self.function, self.args, self.state = function, args, state


class Inst:
    """NEWOBJ and BUILD."""
    def __init__(self, cls, state=None, args=()):
        self.cls, self.state, self.args = cls, state, args


class Pers:
    """BINPERSID."""
    def __init__(self, id):
        self.id = id


class Raw:
    """Opcodes as they are."""
    def __init__(self, opcodes):
        self.opcodes = opcodes


def long1(value):
    """The shortest LONG1."""
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def integer(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -2**31 <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    return long1(value)


def text(value):
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def enc(value):
    """The opcodes that leave `value` on the stack."""
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return b"B" + struct.pack("<I", len(value)) + value
    if isinstance(value, tuple):
        return b"(" + b"".join(map(enc, value)) + b"t" if value else b")"
    if isinstance(value, list):
        return b"](" + b"".join(map(enc, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(enc(k) + enc(v) for k, v in value.items()) + b"u"
    if isinstance(value, G):
        return b"c" + value.module.encode() + b"\n" + value.name.encode() + b"\n"
    if isinstance(value, Call):
        build = b"" if value.state is None else enc(value.state) + b"b"
        return enc(value.function) + enc(value.args) + b"R" + build
    if isinstance(value, Inst):
        build = b"" if value.state is None else enc(value.state) + b"b"
        return enc(value.cls) + enc(value.args) + b"\x81" + build
    if isinstance(value, Pers):
        return enc(value.id) + b"Q"
    return value.opcodes


def dumps(value, protocol=2):
    return b"\x80" + bytes([protocol]) + enc(value) + b"."


ORDERED = Call(G("collections", "OrderedDict"))


def strides_of(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)


def storage(key="0", elements=4, cls="FloatStorage", location="cpu", module="torch"):
    return Pers(("storage", G(module, cls), key, location, elements))


def tensor(shape=(4,), key="0", *, elements=4, cls="FloatStorage", stride=None, offset=0):
    """torch._utils._rebuild_tensor_v2 of a storage."""
    return Call(G("torch._utils", "_rebuild_tensor_v2"),
                (storage(key, elements, cls), offset, shape, strides_of(shape) if stride is None else stride, False, ORDERED))
