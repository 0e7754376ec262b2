"""PyTorch's own asynchronous save of as many bytes: async_save_peer.py DIR BYTES SAVES -> JSON, seconds each save waited and took."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

folder, size, saves = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(2)
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
dist.init_process_group("gloo", rank=0, world_size=1)
rows = 1536
count = max(1, size // (rows * 512 * 4))
state = {f"layer.{i}": torch.randn(rows, 512) for i in range(count)}
times = []
for save in range(saves):
    start = time.monotonic()
    future = dcp.async_save(state, checkpoint_id=f"{folder}/{save}")
    waited = time.monotonic() - start
    future.result()
    times.append({"waited": waited, "whole": time.monotonic() - start})
print(json.dumps(times))
