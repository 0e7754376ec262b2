"""Pickles that call, lie, loop or explode; as data.pkl of a torch.save file unless they say otherwise."""
import struct

import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, HARMLESS, damaged, not_understood, one_file, refused, warned, warning, error, without_tensors

group = Group("pickle")
CASES = group.cases

MARKER = "ckptkit-was-executed"
TOUCH = f"touch {MARKER}"
FLOATS = {"0": b"\0" * 16}


def pt(value, storages=FLOATS, protocol=2):
    pickle = value if isinstance(value, bytes) else p.dumps(value, protocol)
    return one_file("model.pt", z.torch_file(pickle, storages))


def beside(value):
    """A state dict of one good tensor `w` and `x`."""
    return pt({"w": p.tensor(), "x": value})


# --- Calls, by the functions that scanners and torch's own list have missed over the years.

CALLS = {
    "os-system": ("os", "system", (TOUCH,)),
    "posix-system": ("posix", "system", (TOUCH,)),
    "nt-system": ("nt", "system", (TOUCH,)),
    "eval": ("builtins", "eval", (f"open('{MARKER}','w')",)),
    "exec": ("builtins", "exec", (f"open('{MARKER}','w')",)),
    "compile": ("builtins", "compile", ("1", "x", "exec")),
    "import": ("builtins", "__import__", ("os",)),
    "getattr": ("builtins", "getattr", (p.G("os", "system"), "__call__")),
    "open-for-writing": ("builtins", "open", (MARKER, "w")),
    "io-open": ("_io", "open", (MARKER, "w")),
    "python2-execfile": ("__builtin__", "execfile", (MARKER,)),
    "breakpoint": ("builtins", "breakpoint", ()),
    "popen": ("subprocess", "Popen", (["touch", MARKER],)),
    "check-output": ("subprocess", "check_output", (["touch", MARKER],)),
    "pty-spawn": ("pty", "spawn", (["touch", MARKER],)),
    "runpy": ("runpy", "_run_code", ("1", {})),
    "importlib": ("importlib", "import_module", ("os",)),
    "webbrowser": ("webbrowser", "open", ("http://localhost/",)),
    "rmtree": ("shutil", "rmtree", ("/nowhere",)),
    "ctypes": ("ctypes", "CDLL", ("libc.so.6",)),
    "code-interact": ("code", "interact", ()),
    "pdb-run": ("pdb", "run", ("1",)),
    "bdb-run": ("bdb", "Bdb.run", ("1",)),
    "timeit": ("timeit", "timeit", ("1", f"open('{MARKER}','w')")),
    "cprofile": ("cProfile", "run", ("1",)),
    "trace": ("trace", "Trace.run", ("1",)),
    "doctest": ("doctest", "debug_script", (f"open('{MARKER}','w')",)),
    "operator-attrgetter": ("operator", "attrgetter", ("system",)),
    "operator-methodcaller": ("operator", "methodcaller", ("system", TOUCH)),
    "pickle-loads": ("_pickle", "loads", (b"cos\nsystem\n(S'x'\ntR.",)),
    "marshal-loads": ("marshal", "loads", (b"\xe3",)),
    "pip-main": ("pip", "main", (["install", "x"],)),
    "ensurepip": ("ensurepip", "_run_pip", (["install", "x"],)),
    "pydoc-pager": ("pydoc", "pipepager", ("x", TOUCH)),
    "logging-listen": ("logging.config", "listen", (9030,)),
    "asyncio-exec": ("asyncio.unix_events", "_UnixSubprocessTransport._start", ()),
    "numpy-runstring": ("numpy.testing._private.utils", "runstring", ("1", {})),
    "torch-load": ("torch.serialization", "load", ("x.pt",)),
    "torch-hub": ("torch.hub", "load", ("x/y", "z")),
    "torch-compile-file": ("torch._inductor.codecache", "compile_file", ("x", "y", "z")),
    "torch-load-config": ("torch.utils._config_module", "ConfigModule.load_config", (b"x",)),
    "lambda-in-torch": ("torch", "load", ("x",)),
    "dotted-name": ("os", "path.os.system", (TOUCH,)),
}
for name, (module, function, args) in CALLS.items():
    modern = {"__builtin__": "builtins"}.get(module, module)
    group.add(f"reduce-{name}", f"REDUCE calls {module}.{function}", beside(p.Call(p.G(module, function), args)),
              warned("unsafe_pickle", f"the pickle calls {modern}.{function}; it was not run", tensor="x", file="model.pt"))

group.add("reduce-root", "the whole file is what a call returns", pt(p.Call(p.G("os", "system"), (TOUCH,))),
          without_tensors(warned("unsafe_pickle", "the pickle calls os.system; it was not run")))
group.add("reduce-dropped", "the result of the call is popped at once",
          pt(p.Raw(p.enc(p.Call(p.G("os", "system"), (TOUCH,))) + b"0" + p.enc({"w": p.tensor()}))),
          warned("unsafe_pickle", "calls os.system"))
group.add("reduce-as-key", "the call is the key of a dict",
          pt(p.Raw(b"}(" + p.enc(p.Call(p.G("os", "system"), (TOUCH,))) + p.enc(p.tensor()) + b"u")),
          warned("unsafe_pickle", "calls os.system"))
group.add("reduce-in-storage-key", "the call is an argument of a tensor",
          pt({"w": p.Call(p.G("torch._utils", "_rebuild_tensor_v2"),
                          (p.storage(), 0, (4,), (1,), False, p.Call(p.G("os", "system"), (TOUCH,))))}),
          warned("unsafe_pickle", "calls os.system"))
group.add("reduce-of-reduce", "what a call returned is called", beside(p.Call(p.Call(p.G("os", "system"), (TOUCH,)), ())),
          warned("unsafe_pickle", "calls what another call returned", tensor="x", also=(
              warning("unsafe_pickle", "calls os.system"), warning("unsafe_pickle", "calls os.system", tensor="x"))))
group.add("stack-global", "the name of the function is put together on the stack",
          beside(p.Raw(p.enc("os") + p.enc("system") + b"\x93" + p.enc((TOUCH,)) + b"R")),
          warned("unsafe_pickle", "calls os.system", tensor="x"))
group.add("memoized-function", "the function comes back from the memo",
          beside(p.Raw(p.enc(p.G("os", "system")) + b"q\x07" + p.enc((TOUCH,)) + b"R")), warned("unsafe_pickle", "calls os.system"))
group.add("setstate-build", "BUILD gives a harmless class a hostile state",
          beside(p.Call(p.G("collections", "OrderedDict"), (), {"__class__": p.G("os", "system"), "__reduce__": 1})), HARMLESS)
group.add("newobj-popen", "NEWOBJ of subprocess.Popen",
          beside(p.Inst(p.G("subprocess", "Popen"), {"args": ["touch", MARKER]})), HARMLESS)
group.add("newobj-ex", "NEWOBJ_EX passes keyword arguments",
          beside(p.Raw(p.enc(p.G("subprocess", "Popen")) + b")" + p.enc({"args": ["touch", MARKER]}) + b"\x92")), HARMLESS)
group.add("partial-of-system", "functools.partial, a class, around os.system",
          beside(p.Call(p.Call(p.G("functools", "partial"), (p.G("os", "system"), TOUCH)), ())),
          warned("unsafe_pickle", "calls what another call returned", tensor="x"))

# --- Opcodes that only an attacker writes, or that nobody here can answer.

REFUSED_OPCODES = {
    "inst": (b"(" + p.enc(TOUCH) + b"ios\nsystem\n", "unsafe_pickle", "opcode INST, a call of os.system, is refused"),
    "obj": (b"(" + p.enc(p.G("os", "system")) + p.enc(TOUCH) + b"o", "unsafe_pickle", "opcode OBJ, a call, is refused"),
    "ext1": (b"\x82\x01", "unsupported", "opcode EXT"),
    "ext2": (b"\x83\x01\x00", "unsupported", "opcode EXT"),
    "ext4": (b"\x84\x01\x00\x00\x00", "unsupported", "opcode EXT"),
    "persid-text": (b"P0\n", "unsupported", "opcode PERSID"),
    "next-buffer": (b"\x97", "unsupported", "an out-of-band buffer"),
    "readonly-buffer": (b"]\x98", "unsupported", "an out-of-band buffer"),
    "unknown-opcode": (b"\xff", "bad_metadata", "unknown pickle opcode 0xff"),
    "protocol-6": (b"\x80\x06", "unsupported", "pickle protocol 6"),
}
for name, (opcodes, kind, message) in REFUSED_OPCODES.items():
    group.add(f"opcode-{name}", f"an opcode out of bounds: {name}", beside(p.Raw(opcodes)),
              refused(kind, message, file="model.pt"))
group.add("inst-with-controls", "INST whose name holds terminal escapes", beside(p.Raw(b"(i\x1b[2Jos\nsys\rtem\n")),
          refused("unsafe_pickle", "opcode INST"))

# --- Stack, marks and memo.

BROKEN = {
    "underflow-reduce": (b"R", "pickle stack underflow"),
    "underflow-tuple": (b"N\x87", "pickle stack underflow"),
    "underflow-setitem": (b"}Ns", "pickle stack underflow"),
    "underflow-under-mark": (b"N(\x85", "pickle stack underflow"),
    "append-without-mark": (b"]e", "no mark on the pickle stack"),
    "tuple-without-mark": (b"t", "no mark on the pickle stack"),
    "stop-on-empty": (b"", "pickle stack underflow"),
    "stop-under-mark": (b"N(", "pickle stack underflow"),
    "two-values": (b"NN", "a pickle that leaves several values"),
    "value-under-mark": (b"N(N", "a pickle that leaves several values"),
    "odd-dict": (b"(Nd", "a key without its value"),
    "odd-setitems": (b"}(Nu", "a key without its value"),
    "append-to-int": (b"K\1Na", "items appended to a int"),
    "append-to-tuple": (b")Na", "items appended to a tuple"),
    "setitem-on-list": (b"]NNs", "entries set in a list"),
    "additems-to-list": (b"](N\x90", "items added to a list"),
    "build-on-int": (b"K\1}b", "a state for a int"),
    "build-twice": (p.enc(p.Inst(p.G("a", "B"), {})) + b"}b", "a second state for the same object"),
    "reduce-no-tuple": (p.enc(p.G("a", "b")) + b"]R", "arguments of a call that are not a tuple"),
    "newobj-no-tuple": (p.enc(p.G("a", "B")) + b"]\x81", "arguments of a class that are not a tuple"),
    "newobj-of-int": (b"K\1)\x81", "an instance of something that is not a class"),
    "newobj-ex-no-dict": (p.enc(p.G("a", "B")) + b")]\x92", "keyword arguments that are not a dict"),
    "stack-global-of-int": (b"K\1K\1\x93", "a class whose name is not text"),
    "memo-not-set": (b"h\x09", "pickle memo slot 9 not set"),
    "memo-long-not-set": (b"j\xff\xff\xff\xff", "pickle memo slot 4294967295 not set"),
    "memo-text-huge": (b"g99999999999999999999\n", "a pickle memo slot that is not a number"),
    "memo-text-negative": (b"g-1\n", "a pickle memo slot that is not a number"),
    "memo-put-empty": (b"q\x00", "pickle stack underflow"),
    "memo-gap": (b"K\1q\x050K\2\x940h\x06", "MEMOIZE behind a gap in the memo"),
    "int-no-number": (b"I1x\n", "an integer that is not a decimal number"),
    "long-no-number": (b"L0x10L\n", "an integer that is not a decimal number"),
    "float-no-number": (b"F1e\n", "a float that is not a number"),
    "string-unquoted": (b"Sabc\n", "a text that is not a string literal"),
    "unicode-bad-escape": (b"V\\ud8\n", "a malformed \\u escape"),
    "text-not-utf8": (b"X\1\0\0\0\xff", "a text that is not UTF-8"),
    "global-not-utf8": (b"c\xff\nx\n", "a name that is not UTF-8"),
    "line-without-end": (b"c" + b"a" * 40, "the pickle ends early"),
}
for name, (opcodes, message) in BROKEN.items():
    pickle = b"\x80\x02" + opcodes + b"." if name != "line-without-end" else b"\x80\x02" + opcodes
    group.add(name, f"malformed: {message}", pt(pickle), refused("bad_metadata", message, file="model.pt"))

# --- Lengths that lie.

LENGTHS = {
    "text-length": (b"X" + struct.pack("<I", 0x7fffffff), "resource", "a length of 2147483647 bytes is announced"),
    "text8-length": (b"\x8d" + struct.pack("<Q", 2**64 - 1), "resource", "a length of 18446744073709551615 bytes is announced"),
    "bytes8-length": (b"\x8e" + struct.pack("<Q", 2**63), "resource", "is announced, more than the whole pickle has"),
    "bytearray8-length": (b"\x96" + struct.pack("<Q", 2**40), "resource", "is announced, more than the whole pickle has"),
    "long4-length": (b"\x8b" + struct.pack("<I", 0x7fffffff), "resource", "is announced, more than the whole pickle has"),
    "long4-negative": (b"\x8b" + struct.pack("<i", -1), "resource", "is announced, more than the whole pickle has"),
    "short-text-past-end": (p.enc("a" * 99) + b"0\x8c\x20ab", "bad_metadata", "the pickle ends early"),
    "frame-past-end": (b"\x95\1\2", "bad_metadata", "the pickle ends early"),
}
for name, (opcodes, kind, message) in LENGTHS.items():
    group.add(name, f"a length past the end: {name}", pt(b"\x80\x04" + opcodes + b"."), refused(kind, message))
group.add("frame-lies", "FRAME announces more than there is",
          pt(b"\x80\x04\x95" + struct.pack("<Q", 2**62) + p.enc({"w": p.tensor()}) + b"."),
          refused("bad_metadata", "the pickle ends early"))

# --- Structures that explode or never end.


def doubled_list(levels):
    """A list of two references to a list of two references to …"""
    out = b"]q\0"
    for i in range(levels):
        out += b"0](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1])
    return out


group.add("billion-laughs", "60 lists, each twice in the next: 2^60 paths, none to a tensor", beside(p.Raw(doubled_list(60))),
          warned("resource", "when written out", tensor="x"))
group.add("billion-tensors", "40 lists, each twice in the next, a tensor at the bottom",
          pt(b"\x80\x02" + p.enc(p.tensor()) + b"\x85q\0" + doubled_list(40)[3:] + b"."),
          refused("resource", "names more tensors than can be listed"))
group.add("cycle-list", "a list that holds itself", beside(p.Raw(b"]q\0h\0a")), warned("resource", "contains itself", tensor="x"))
group.add("cycle-dict", "a dict that holds itself",
          pt(b"\x80\x02}q\0(" + p.enc("w") + p.enc(p.tensor()) + p.enc("me") + b"h\0u."), warned("resource", "contains itself", tensor="me"))
group.add("cycle-through-call", "an object whose state is itself",
          beside(p.Raw(p.enc(p.G("a", "B")) + b")\x81q\0h\0b")), HARMLESS)
group.add("deep-lists", "a million lists, one in the other", pt(b"\x80\x02" + b"]" * 1000000 + b"a" * 999999 + b"."),
          without_tensors(warned("resource", "nested deeper")))
group.add("deep-tuples", "a million tuples around nothing", pt(b"\x80\x02N" + b"\x85" * 1000000 + b"."),
          without_tensors(warned("resource", "nested deeper")))
group.add("deep-marks", "a million marks", pt(b"\x80\x02" + b"(" * 1000000 + b"N."),
          refused("bad_metadata", "a pickle that leaves several values"))
group.add("deep-dup", "a million copies of the top of the stack", pt(b"\x80\x02N" + b"2" * 1000000 + b"."),
          refused("bad_metadata", "a pickle that leaves several values"))
group.add("deep-calls", "200000 calls, each the argument of the next",
          beside(p.Raw(p.enc(p.G("collections", "OrderedDict")) + b"q\0" + b"0N" + b"\x85q\x010h\0h\1R" * 200000)), HARMLESS)
group.add("wide-list", "four million references to nothing", pt(b"\x80\x02](" + b"N" * 4000000 + b"e."), without_tensors())
group.add("shared-list-of-tensor", "a list with a tensor and 40000 numbers, 40000 times in another: quadratic to walk",
          pt(b"\x80\x02](" + p.enc(p.tensor()) + b"K\1" * 40000 + b"eq\x000](" + b"h\0" * 40000 + b"e."),
          refused("resource", "more places than can be looked at"))
group.add("shared-containers", "a list with a tensor and 20000 empty lists, 20000 times in another: quadratic to walk",
          pt(b"\x80\x02](" + p.enc(p.tensor()) + b"]" * 20000 + b"eq\x000](" + b"h\0" * 20000 + b"e."),
          refused("resource", "more places than can be looked at"))
group.add("shared-state", "40000 objects that share one state of 40000 entries: quadratic to look up",
          pt(b"\x80\x02}(" + (p.enc("k") + b"q\1" + b"N" + b"h\1N" * 40000) + b"uq\x000" + p.enc(p.G("a", "B")) + b"q\x020]("
             + b"h\2)\x81h\0b" * 40000 + b"e."), without_tensors())
group.add("big-int-decimal", "an INT of a million digits: quadratic to read",
          beside(p.Raw(b"I" + b"9" * 1000000 + b"\n")), refused("bad_metadata", "an integer that is not a decimal number"))
group.add("big-int-binary", "a LONG4 of two megabytes", beside(p.Raw(b"\x8b" + struct.pack("<I", 1 << 21) + b"\x7f" * (1 << 21))),
          refused("resource", "an integer past a megabyte"))
group.add("big-int-as-key", "a LONG4 of a megabyte as the name of a tensor: quadratic to print",
          pt(b"\x80\x02}(" + b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20) + p.enc(p.tensor()) + b"u."),
          HARMLESS)
group.add("global-names", "a long class name, put together anew thousands of times",
          beside(p.Raw(p.enc("m" * 4000) + b"q\0" + b"0](" + b"".join(b"h\0" + p.enc(f"n{i}") + b"\x93" for i in range(2000)) + b"e")),
          refused("resource", "names of classes take more room than the pickle"))
group.add("global-name-long", "a class name of a megabyte, named thousands of times",
          beside(p.Raw(p.enc("m" * 1000000) + b"q\0" + p.enc("n") + b"q\x01" + b"00](" + b"h\0h\x01\x93" * 100000 + b"e")),
          refused("resource", "a class's name of more than 4096 bytes"))
group.add("tensor-built", "a state for a tensor that is there already: torch takes another storage for it",
          beside(p.Raw(p.enc(p.tensor()) + p.enc((1, 2)) + b"b")), not_understood("the pickle changes the tensor after it was rebuilt", tensor="x"))
group.add("tensor-set-item", "elements set in a tensor",
          beside(p.Raw(p.enc(p.tensor()) + b"K\0K\1s")), not_understood("the pickle changes the tensor after it was rebuilt", tensor="x"))
group.add("nested-frozensets", "48 sets, one in the other: exponential if each level is looked at twice",
          beside(p.Raw(b"(" * 48 + b"N" + b"\x91" * 48)), HARMLESS)
group.add("tuple-of-tuples-key", "eight levels of a thousand references each as a key: 10^24 texts",
          pt(b"\x80\x02Nq\x000" + b"".join(b"(" + b"h" * 0 + (b"h" + bytes([i])) * 1000 + b"tq" + bytes([i + 1]) + b"0" for i in range(8))
             + b"}h\x08" + p.enc(p.tensor()) + b"s."), HARMLESS)
group.add("shared-text-key", "a key of 1 MB for 200000 lists without a tensor",
          pt(b"\x80\x02" + p.enc("k" * 1000000) + b"q\x000](" + b"}h\0]s" * 200000 + b"e."),
          without_tensors(warned("resource", "values beside the tensors are more than can be listed")))
group.add("deep-key", "a tensor whose name is a hundred thousand tuples deep",
          pt(b"\x80\x02}(N" + b"\x85" * 100000 + p.enc(p.tensor()) + b"u."), HARMLESS)
group.add("wide-key", "tuples that share tuples as the name of a tensor: 2^50 characters",
          pt(b"\x80\x02}(N" + b"".join(b"2\x86" for _ in range(50)) + p.enc(p.tensor()) + b"u."), HARMLESS)
group.add("shared-key", "a key of 4 MB, a thousand times",
          pt(b"\x80\x02" + p.enc("k" * 4000000) + b"q\x000](" + b"".join(b"}h\0" + p.enc(p.tensor()) + b"s" for _ in range(1000)) + b"e."),
          refused("resource", "names more tensors than can be listed"))

# --- Names that mean two things, references that mean nothing.

group.add("same-key-twice", "a dict with one key twice, tensors behind both",
          pt(b"\x80\x02}(" + (p.enc("w") + p.enc(p.tensor())) * 2 + b"u."),
          refused("bad_metadata", "a dict has the same key twice"))
group.add("same-number-twice", "1, 1.0 and True are one key",
          pt(b"\x80\x02}(K\1" + p.enc(p.tensor()) + b"\x88" + p.enc(p.tensor(offset=0)) + b"u."),
          refused("bad_metadata", "a dict has the same key twice"))
group.add("same-key-overwritten", "Python keeps the last value of a key: not the tensor",
          pt(b"\x80\x02}(" + p.enc("w") + p.enc(p.tensor()) + p.enc("w") + b"Nu."),
          refused("bad_metadata", "a dict has the same key twice"))
group.add("same-path", "two keys that make one path", pt({"a": {"b": p.tensor()}, "a.b": p.tensor()}), HARMLESS)
group.add("key-with-controls", "a tensor whose name holds terminal escapes, NUL and a line end",
          pt({"\x1b[2J\0\nw": p.tensor()}), HARMLESS)
group.add("key-with-surrogate", "a tensor whose name is half a surrogate pair", pt({"\udc00w": p.tensor()}), HARMLESS)
group.add("empty-key", "a tensor without a name beside the root", pt({"": p.tensor()}), HARMLESS)

PERSISTENT = {
    "no-tuple": "storage",
    "too-short": ("storage", p.G("torch", "FloatStorage"), "0"),
    "other-word": ("module", p.G("torch", "FloatStorage"), "0", "cpu", 4),
    "class-as-text": ("storage", "FloatStorage", "0", "cpu", 4),
    "key-as-int": ("storage", p.G("torch", "FloatStorage"), 0, "cpu", 4),
    "bad-view": ("storage", p.G("torch", "FloatStorage"), "0", "cpu", 4, ("1", -1, 4)),
}
for name, id in PERSISTENT.items():
    value = p.Call(p.G("torch._utils", "_rebuild_tensor_v2"), (p.Pers(id), 0, (4,), (1,), False, p.ORDERED))
    group.add(f"persistent-{name}", "a persistent id that is not a storage", pt({"w": value}),
              damaged("bad_item", "a tensor is rebuilt from something that is not a storage", tensor="w"))
group.add("persistent-other-class", "a storage of a class that torch has not",
          pt({"w": p.tensor(cls="Popen")}), without_tensors(warned("unsupported", "an object holds numbers that are not tensors of the checkpoint", tensor="w")))
