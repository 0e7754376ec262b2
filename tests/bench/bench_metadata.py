#!/usr/bin/env python3
"""`ckpt-inspect tensors` on a large .metadata that real torch pickled, against FileSystemReader.read_metadata.

    bench_metadata.py --bin build/release/bin [--tensors 10000] [--chunks 100] [--files 100] [--runs 5]

Run with a Python that has torch. The peer's time is read_metadata alone, in a process that has imported torch already;
ours is the whole process, reading and printing as JSON. Both in turn, warm cache. The ceiling beside them: reading the
file's bytes once.
"""
import argparse
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time

import measure

WIDTH = 64  # columns of every tensor; each chunk holds ROWS of its rows
ROWS = 8


def write_checkpoint(folder, tensors, chunks, files):
    """The metadata of a run on `chunks` ranks, and data files of the right size without content."""
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex,
                                                       TensorProperties, TensorStorageMetadata)

    item_bytes = 1024 + 4 * ROWS * WIDTH
    state, storage, used = {}, {}, [0] * files
    for t in range(tensors):
        key = f"model.layers.{t // 10}.mlp.experts.linear_fc1.weight{t % 10}"
        pieces = []
        for c in range(chunks):
            offsets = torch.Size([c * ROWS, 0])
            pieces.append(ChunkStorageMetadata(offsets=offsets, sizes=torch.Size([ROWS, WIDTH])))
            file = c % files
            storage[MetadataIndex(key, offsets, c)] = _StorageInfo(f"__{file}_0.distcp", used[file], item_bytes)
            used[file] += item_bytes
        properties = TensorProperties(dtype=torch.float32)
        state[key] = TensorStorageMetadata(properties, torch.Size([chunks * ROWS, WIDTH]), pieces)
    metadata = Metadata(state_dict_metadata=state, planner_data={k: (k,) for k in state}, storage_data=storage)
    folder.mkdir()
    with open(folder / ".metadata", "wb") as file:
        pickle.dump(metadata, file)
    for i, size in enumerate(used):
        with open(folder / f"__{i}_0.distcp", "wb") as file:
            file.truncate(size)


PEER = """
import sys, time, resource
from torch.distributed.checkpoint import FileSystemReader
started = time.perf_counter()
metadata = FileSystemReader(sys.argv[1]).read_metadata()
print(time.perf_counter() - started, len(metadata.storage_data), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--tensors", type=int, default=10000)
    parser.add_argument("--chunks", type=int, default=100, help="of each tensor")
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        folder = pathlib.Path(scratch) / "ckpt"
        write_checkpoint(folder, args.tensors, args.chunks, args.files)
        size = (folder / ".metadata").stat().st_size
        ours, peer, peer_rss, reads = [], [], [], []
        for _ in range(args.runs):
            with open(pathlib.Path(scratch) / "tensors.json", "wb") as out:
                ours.append(measure.run([args.bin / "ckpt-inspect", "tensors", folder, "--json"], stdout=out))
            listed = json.loads((pathlib.Path(scratch) / "tensors.json").read_text())["tensors"]
            if len(listed) != args.tensors or any(t["chunks"] != args.chunks for t in listed):
                raise RuntimeError("ckpt-inspect did not list every tensor")
            text = subprocess.run([sys.executable, "-W", "ignore", "-c", PEER, folder], check=True, capture_output=True, text=True)
            seconds, entries, rss = text.stdout.split()
            assert int(entries) == args.tensors * args.chunks
            peer.append(float(seconds))
            peer_rss.append(int(rss))
            started = time.perf_counter()
            (folder / ".metadata").read_bytes()
            reads.append(time.perf_counter() - started)
            print(f"ours {ours[-1].seconds:.3f} s, peer {peer[-1]:.3f} s", file=sys.stderr)

    ours_seconds = [r.seconds for r in ours]
    print(json.dumps({
        "chunks": args.tensors * args.chunks, "tensors": args.tensors, "files": args.files, "metadata_bytes": size,
        "runs": args.runs, "seconds": {"ours": ours_seconds, "read_metadata": peer, "read_bytes": reads},
        "ratio": round(measure.median(peer) / measure.median(ours_seconds), 2),
        "peak_rss_bytes": {"ours": max(r.peak_rss_bytes for r in ours), "read_metadata": max(peer_rss)},
    }))


if __name__ == "__main__":
    main()
