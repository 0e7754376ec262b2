#!/usr/bin/env python3
"""A safetensors file to HDF5 and back to memory, beside h5py.

    bench_hdf5.py --bin build/release/bin [--mb 1024] [--runs 5] [--work DIR]

Run with the Python of `tools/dev/venv hdf5`. `write`: one HDF5 file of the same tensors, synced; h5py writes arrays that it views in the
mapped source. `write zstd`: the same in chunks of 16 MiB by the zstd filter, level 3. `read`: every tensor once, `ckpt-inspect
digest` (hash included) and h5py into new arrays. `link`: `to-hdf5 --link` and nothing beside it. Ceilings: `cp` with fsync, and `cat`. Whole
processes in turn; for h5py the work alone, without imports. The files lie in the page cache. `write zstd` has two more: the `zstd` command
without a result (compression alone, `-3 -T0`), and `dd` of as many bytes as it writes. Prints one JSON document.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

import measure

PEER = """
import json, os, sys, time
import h5py, hdf5plugin, numpy as np
verb, source, target = sys.argv[1:4]
def arrays():
    data = np.memmap(source, mode="r")
    length = int(data[:8].view("<u8")[0])
    for name, entry in json.loads(bytes(data[8:8 + length])).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, data[8 + length + begin:8 + length + end].view("f4").reshape(entry["shape"])
started = time.perf_counter()
if verb == "read":
    with h5py.File(target) as file:
        for item in file["tensors"].values():
            item[()]
else:
    with h5py.File(target, "w") as file:
        for name, array in arrays():
            if verb == "zstd":
                rows = max(1, min(array.shape[0], (16 << 20) // (array.nbytes // array.shape[0])))
                file.create_dataset(name, data=array, chunks=(rows, *array.shape[1:]), **hdf5plugin.Zstd(clevel=3))
            else:
                file[name] = array
    descriptor = os.open(target, os.O_RDONLY)
    os.fsync(descriptor)
print(time.perf_counter() - started)
"""


def make_source(path, megabytes):
    """Random weights that compress as trained ones do: equal exponents, random mantissas."""
    rng = np.random.default_rng(7)
    shape = (2048, 2048)
    count = max(1, megabytes * (1 << 20) // (4 * shape[0] * shape[1]))
    size = 4 * shape[0] * shape[1]
    header = json.dumps({f"layers.{i}.weight": {"dtype": "F32", "shape": shape, "data_offsets": [i * size, (i + 1) * size]}
                         for i in range(count)}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        for _ in range(count):
            out.write((rng.standard_normal(shape, dtype="f4") * 0.02).tobytes())


def peer(*arguments):
    done = subprocess.run([sys.executable, "-c", PEER, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True)
    return measure.Run(float(done.stdout), 0.0, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(dir=args.work))
    try:
        source, target = work / "model.safetensors", work / "out.h5"
        kept = work / "kept.h5"
        make_source(source, args.mb)
        convert = [args.bin / "ckpt-convert", "to-hdf5", "-q", source]
        measure.run([*convert, kept])
        sides = {
            "write": lambda: measure.run([*convert, target, "--no-verify"]),
            "write and verify": lambda: measure.run([*convert, target]),
            "write, h5py": lambda: peer("plain", source, target),
            "write, cp and fsync": lambda: measure.run(["sh", "-c", f"cp {source} {target} && sync {target}"]),
            "write zstd": lambda: measure.run([*convert, target, "--no-verify", "--compress", "zstd:3"]),
            "write zstd, h5py": lambda: peer("zstd", source, target),
            "write zstd, compression alone": lambda: measure.run(["sh", "-c", 'zstd -q -3 -T0 -c "$1" >/dev/null', "sh", source]),
            "write zstd, dd and fsync": lambda: measure.write(target, sizes["write zstd"]),
            "link": lambda: measure.run([*convert, target, "--link"]),
            "read and digest": lambda: measure.run([args.bin / "ckpt-inspect", "digest", kept]),
            "read, h5py": lambda: peer("read", source, kept),
            "read, cat": lambda: measure.run(["cat", kept]),
        }
        seconds = {side: [] for side in sides}
        sizes = {}
        for i in range(args.runs + 1):  # the first round warms up and is not counted
            for side, measured in sides.items():
                target.unlink(missing_ok=True)
                run = measured()
                if target.exists():
                    sizes[side] = target.stat().st_size
                if i > 0:
                    seconds[side].append(run.seconds)
        print(json.dumps({"bytes": source.stat().st_size, "runs": args.runs, "machine": measure.machine(),
                          "seconds": {side: measure.spread(values) for side, values in seconds.items()}, "target_bytes": sizes}, indent=1))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
