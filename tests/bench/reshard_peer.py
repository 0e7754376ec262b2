#!/usr/bin/env python3
"""What `dcp.load` takes to load a checkpoint into shards of each of some ranks, processes that speak through gloo.

    reshard_peer.py CHECKPOINT RANKS MEETING

MEETING: a file's path, where none is yet. Every tensor is split along its first dimension, as FSDP2 does. Prints one JSON document: the
seconds between two barriers around the call, and the bytes that all ranks read in it.
"""
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, zeros


def bytes_read():
    """By the calls of this process so far."""
    with open("/proc/self/io") as file:
        return int(dict(line.split(": ") for line in file)["rchar"])


def load(rank, ranks, checkpoint, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    reader = dcp.FileSystemReader(checkpoint)
    state = {key: zeros(entry.size, dtype=entry.properties.dtype, device_mesh=mesh, placements=[Shard(0)] if entry.size else None)
             for key, entry in reader.read_metadata().state_dict_metadata.items() if hasattr(entry, "size")}
    dist.barrier()
    started, before = time.perf_counter(), bytes_read()
    dcp.load(state, storage_reader=reader)
    read = torch.tensor(bytes_read() - before)
    dist.barrier()
    seconds = time.perf_counter() - started
    dist.all_reduce(read)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "bytes": int(read)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    checkpoint, ranks, meeting = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.multiprocessing.spawn(load, (ranks, checkpoint, meeting), nprocs=ranks)
