"""Whatever we accept, the reference reader accepts too, and reads the same from it.

Valid and slightly broken pickles, zips and safetensors files against CPython's pickle (with classes that do nothing),
zipfile and the safetensors package. They may accept more than we do; never less.
"""
import concurrent.futures
import hashlib
import io
import os
import pickle
import random
import sys
import zipfile

import pytest
import safetensors

import tools

sys.path.insert(0, str(tools.ROOT / "tests" / "corpus"))

import pickle_bytes as p  # noqa: E402
import safetensors_bytes as s  # noqa: E402
import zip_bytes as z  # noqa: E402

SEED = int(os.environ.get("CKPT_TEST_SEED", "6"))
COUNT = int(os.environ.get("CKPT_DIFFERENTIAL_COUNT", "400"))


def mutated(rng, data):
    """The data with one to three bytes changed, a stretch repeated or left out; one time in four as they are."""
    data = bytearray(data)
    kind = rng.randrange(8)
    if kind < 4:
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice([rng.randrange(256), 0, 255])
    elif kind < 6:
        begin = rng.randrange(len(data))
        end = min(len(data), begin + rng.randint(1, 8))
        data[begin:end] = data[begin:end] * rng.choice([0, 2])
    return bytes(data)


def run_all(inputs, verb, suffix, folder):
    """(input, document or None) of every input, by our tool."""
    def run(numbered):
        number, data = numbered
        path = folder / f"{number}{suffix}"
        path.write_bytes(data)
        code, document, _ = tools.run("ckpt-inspect", verb, path, *(["--algorithm", "sha256"] if verb == "digest" else []), "--json", timeout=60)
        assert code in (0, 1, 3), (code, path)
        return data, document if code == 0 else None
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, enumerate(inputs)))


# --- Pickles.


class Inert:
    """Stands for every class: takes whatever a pickle does to it."""
    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        pass

    def __setitem__(self, key, value):
        pass

    def append(self, item):
        pass

    def extend(self, items):
        pass

    def add(self, item):
        pass


class Restricted(pickle.Unpickler):
    def find_class(self, module, name):
        return type("Inert", (Inert,), {})

    def persistent_load(self, id):
        return Inert()


class Unknown(Exception):
    """A value whose rendering is not a business of this test."""


def rendered(value):
    """As `meta` prints plain values."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if abs(value) <= 2**53 else {"$int": str(value)}
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return value
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, tuple):
        return {"$tuple": [rendered(v) for v in value]}
    if isinstance(value, list):
        return [rendered(v) for v in value]
    if isinstance(value, dict):
        if all(isinstance(k, str) and not k.startswith("$") for k in value):
            return {k: rendered(v) for k, v in value.items()}
        return {"$dict": [[rendered(k), rendered(v)] for k, v in value.items()]}
    raise Unknown


def random_value(rng, depth=0):
    kind = rng.randrange(12 if depth < 3 else 7)
    if kind < 2:
        return rng.choice([0, 1, -1, 255, 256, 65535, 65536, 2**31, -2**31 - 1, 2**63, -2**70, rng.randrange(2**40)])
    if kind == 2:
        return rng.choice([0.0, -1.5, 1e300, rng.random()])
    if kind == 3:
        return rng.choice([None, True, False])
    if kind < 6:
        return rng.choice(["", "a", "weight", "\u00e9", "\U0001f600", "x" * 300, "a\nb"])
    if kind == 6:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(6)))
    items = [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind < 9:
        return items
    if kind == 9:
        return tuple(items)
    return {rng.choice(["a", "b", "c", 1, 2, (3, "x")]): item for item in items}


def has_repeated_keys_only_python_merges(error):
    return isinstance(error, TypeError) and "unhashable" in str(error)


def test_pickles_mean_what_they_mean_to_python(tmp_path):
    print(f"replay: CKPT_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    inputs = [mutated(rng, pickle.dumps({"v": random_value(rng)}, rng.randrange(6))) for _ in range(COUNT)]
    accepted = compared = 0
    for wrapped, document in run_all([z.torch_file(i) for i in inputs], "meta", ".pt", tmp_path):
        if document is None:
            continue
        data = zipfile.ZipFile(io.BytesIO(wrapped)).read("archive/data.pkl")
        accepted += 1
        try:
            value = Restricted(io.BytesIO(data), encoding="utf-8").load()
        except Exception as error:
            # A list as a key cannot be looked up by anybody: no value is read wrongly.
            assert has_repeated_keys_only_python_merges(error), (data, error)
            continue
        try:
            expected = rendered(value)
        except Unknown:
            continue
        compared += 1
        assert document["value"] == expected, data
    assert accepted > COUNT // 5 and compared > COUNT // 6, (accepted, compared)


# --- Zips.

PAYLOAD = bytes(range(16))
PICKLE = p.dumps({"w": p.tensor()})


def zip_input(rng):
    """An archive whose headers, but not its payload, were changed."""
    entries = z.torch_entries(PICKLE, {"0": PAYLOAD})
    if rng.randrange(2):
        return mutated(rng, z.archive(entries, comment=rng.choice([b"", b"PK\5\6", b"made by hand"])))
    entry = rng.choice(entries)
    wide = [0, 1, 15, 16, 17, 255, 2**16 - 1, 2**31, 2**32 - 1]
    if rng.randrange(2):
        setattr(entry, rng.choice(["flags", "method", "attributes"]), rng.choice([0, 1, 8, 0x20, 0x40, 0x800]))
        setattr(entry, rng.choice(["crc", "size", "packed", "at"]), rng.choice(wide + [None] * 9))
    else:
        entry.local = {rng.choice(["crc", "size", "packed", "name_size", "extra_size", "flags", "method"]): rng.choice(wide) & 0xffff}
    fields = {rng.choice(["count", "size", "offset", "here"]): rng.choice([0, 1, 3, 4, 5])} if rng.randrange(3) == 0 else {}
    return z.archive(entries, gap=rng.choice([b"", b"", b"\0"]), **fields)


def test_zips_hold_what_zipfile_finds(tmp_path):
    print(f"replay: CKPT_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    accepted = 0
    for data, document in run_all([zip_input(rng) for _ in range(COUNT)], "digest", ".pt", tmp_path):
        if document is None or "w" not in document["tensors"]:
            continue
        accepted += 1
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
            payload = archive.read(next(n for n in archive.namelist() if n.endswith("/data/0")))
        except NotImplementedError as error:
            # The version that a record says it needs has no meaning for one that is stored as it is.
            assert "zip file version" in str(error), error
            continue
        assert document["tensors"]["w"] == hashlib.sha256(payload).hexdigest(), data
    assert accepted > COUNT // 10, accepted


# --- safetensors.

DTYPES = {"F32": 4, "F64": 8, "I8": 1, "U8": 1, "BF16": 2, "BOOL": 1, "I64": 8, "F8_E4M3": 1}


def safetensors_input(rng):
    header, payload = {}, b""
    for name in rng.sample(["w", "a.b", "\u00e9", "", "x" * 40], rng.randrange(4)):
        dtype = rng.choice(list(DTYPES))
        shape = [rng.choice([0, 1, 2, 3]) for _ in range(rng.randrange(3))]
        size = DTYPES[dtype]
        for dim in shape:
            size *= dim
        header[name] = s.entry(shape, dtype, (len(payload), len(payload) + size))
        payload += bytes(rng.randrange(256) for _ in range(size))
    if rng.randrange(3) == 0:
        header["__metadata__"] = {"format": "pt"}
    if header and rng.randrange(2):  # one number that lies
        entry = header[rng.choice(list(header))]
        if "shape" in entry:
            numbers = rng.choice([entry["shape"], entry["data_offsets"]]) or entry["data_offsets"]
            numbers[rng.randrange(len(numbers))] = rng.choice([0, 1, -1, 2**31, 2**62, 2**63, 2**64, 1.0])
    data = s.file(header, payload)
    return mutated(rng, data) if rng.randrange(2) else data


def test_safetensors_hold_what_the_package_reads(tmp_path):
    print(f"replay: CKPT_TEST_SEED={SEED}")
    rng = random.Random(SEED)
    accepted = 0
    for data, document in run_all([safetensors_input(rng) for _ in range(COUNT)], "digest", ".safetensors", tmp_path):
        if document is None:
            continue
        accepted += 1
        tensors = {name: hashlib.sha256(bytes(t["data"])).hexdigest() for name, t in safetensors.deserialize(data)}
        assert document["tensors"] == tensors, data
    assert accepted > COUNT // 5, accepted


@pytest.mark.parametrize("reader", ["pickle", "zip", "safetensors"])
def test_the_inputs_are_not_all_refused_by_the_reference(reader):
    """Otherwise agreement would say nothing."""
    rng = random.Random(SEED)
    read = {
        "pickle": lambda: Restricted(io.BytesIO(mutated(rng, pickle.dumps({"v": random_value(rng)})))).load(),
        "zip": lambda: zipfile.ZipFile(io.BytesIO(zip_input(rng))).testzip(),
        "safetensors": lambda: safetensors.deserialize(safetensors_input(rng)),
    }[reader]
    good = 0
    for _ in range(200):
        try:
            read()
            good += 1
        except Exception:
            pass
    assert 20 < good < 200, good
