"""Ranks of a gloo group that live in processes of torch.multiprocessing."""
import os
import sys
import time

import torch.distributed as dist


def leave_together(ranks):
    """Ends this process once every rank has come here.

    destroy_process_group can wait for ever on a rank that has left already (gloo, seen in torch 2.4.1), and a rank that leaves
    during another's last collective breaks it. The store is a file: it needs nobody's answer.
    """
    store = dist.distributed_c10d._get_default_store()
    store.add("left", 1)
    while store.add("left", 0) < ranks:
        time.sleep(0.01)
    sys.stdout.flush()
    os._exit(0)
