"""run_config.yaml and train_state.pt, which Megatron-Bridge keeps beside a checkpoint of Megatron-Core."""
import struct

import dcp_bytes as d
import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, Outcome, refused, warned

group = Group("bridge")
CASES = group.cases

SYSTEM = p.Call(p.G("os", "system"), ("touch ckptkit-was-executed",))
NOTHING_SAID = Outcome(0, 0, 0)


def beside(**files):
    """A checkpoint of one tensor with these files."""
    def make(folder):
        d.one_tensor()(folder)
        (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')
        (folder / "common.pt").write_bytes(z.torch_file(p.dumps({"iteration": 1})))
        for name, data in files["files"].items():
            data = data() if callable(data) else data
            (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return folder
    return make


# --- run_config.yaml.

CONFIG = "run_config.yaml"
# Ten levels of ten: 10^10 values out of 400 bytes.
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
YAMLS = {
    "empty": ("", "bad_metadata", "not one mapping"), "list": ("- a\n", "bad_metadata", "not one mapping"),
    "text": ("words\n", "bad_metadata", "not one mapping"), "two-documents": ("a: 1\n---\nb: 2\n", "bad_metadata", "not one mapping"),
    "cut": ('a: "b', "bad_metadata", "not YAML"), "bad-indent": ("a: 1\n b: 2\n  - c\n", "bad_metadata", "not YAML"),
    "tab": ("a:\n\tb: 1\n", "bad_metadata", "not YAML"), "alias-unknown": ("a: *b\n", "bad_metadata", "not YAML"),
    "endless": (",a: 1\n", "resource", "larger than any configuration"), "alias-circle": ("a: &a\n  b: *a\n", "resource", "larger than any configuration"),
    "aliases": (LAUGHS, "resource", "larger than any configuration"),
    "tag-of-python": ("a: !!python/object/apply:os.system ['touch ckptkit-was-executed']\n", "unsupported", "a value with a tag"),
    "tag-on-text": ("a: !!binary aGk=\n", "unsupported", "a value with a tag"),
    "key-twice": ("a: 1\na: 2\n", "bad_metadata", "stands in the configuration twice"),
    "key-mapping": ("? {b: 1}\n: 2\n", "bad_metadata", "not plain text"), "not-utf8": (b"a: \xff\xfe\xff\n", "bad_metadata", ""),
    "deep-lists": ("a: " + "[" * 100000, "bad_metadata", ""), "deep-mappings": ("".join(" " * i + "a:\n" for i in range(2000)), "bad_metadata", "not YAML"),
    "large": (lambda: "a: " + "x" * (5 << 20), "resource", "too large for its kind"), "zeros": (b"\0" * 4096, "bad_metadata", ""),
}
for name, (text, kind, message) in YAMLS.items():
    group.add(f"yaml-{name}", f"a configuration that lies: {name}", beside(files={CONFIG: text}), refused(kind, message, file=CONFIG))
group.add("yaml-whole", "no attack: a configuration", beside(files={CONFIG: "model:\n  num_layers: 1\n"}), NOTHING_SAID)
group.add("yaml-numbers", "numbers of no type", beside(files={CONFIG: f"a: {'9' * 400}\nb: 1e999\nc: -.inf\nd: 0x{'f' * 40}\n"}), NOTHING_SAID)

# --- train_state.pt.

STATE = "train_state.pt"


def number(key="0", cls="LongStorage", shape=(), elements=1):
    return p.tensor(shape, key, elements=elements, cls=cls)


def state(value, *storages):
    return z.torch_file(value if isinstance(value, bytes) else p.dumps(value), {str(i): data for i, data in enumerate(storages)})


WHOLE = struct.pack("<q", 7)
STATES = {
    "garbage": (b"\0" * 64, "unsupported", ""),
    "vector": (state({"step": number(shape=(2,), elements=2)}, WHOLE * 2), "bad_metadata", "a stored number does not have exactly one element"),
    "none": (state({"step": number(shape=(0,), elements=1)}, WHOLE), "bad_metadata", "a stored number does not have exactly one element"),
    "type": (state({"step": number(cls="ByteStorage")}, b"\7"), "bad_metadata", "a stored number has another type"),
    "nan": (state({"flops": number(cls="DoubleStorage")}, struct.pack("<d", float("nan"))), "bad_metadata", "not finite"),
    "infinite": (state({"flops": number(cls="DoubleStorage")}, struct.pack("<d", float("-inf"))), "bad_metadata", "not finite"),
    "past-63-bits": (state({"step": number()}, struct.pack("<q", (1 << 63) - 1)), "bad_metadata", "too large"),
    "many": (lambda: state({f"n{i}": number() for i in range(1001)}, WHOLE), "resource", "more numbers than a train state has"),
    "bomb": (state({"step": number(shape=(1 << 40,), elements=1 << 40)}, WHOLE), "size_mismatch", ""),
    "large": (lambda: state({"step": number()}, WHOLE, b"\0" * (2 << 20)), "resource", "larger than any train state"),
}
for name, (data, kind, message) in STATES.items():
    group.add(f"state-{name}", f"a train state that lies: {name}", beside(files={STATE: data}), refused(kind, message, file=STATE))
group.add("state-whole", "no attack: a train state", beside(files={STATE: state({"step": number()}, WHOLE)}), NOTHING_SAID)
group.add("state-call", "a train state that is a call", beside(files={STATE: state(SYSTEM)}), NOTHING_SAID)
group.add("state-member-call", "a number that is a call", beside(files={STATE: state({"step": SYSTEM})}), NOTHING_SAID)
