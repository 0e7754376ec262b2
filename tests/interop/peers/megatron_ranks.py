"""Ranks of real Megatron that hold a model's parts, in processes. Import megatron_core first: it reads CORE and FOLDER from the command line."""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel

import mp_rank_model
from ranks import leave_together

peer = sys.modules["megatron_core"]


class Rank:
    """This process: its `parts` of the model in `folder` (torch_dist), of local layers, with their `names` in a checkpoint.

    `common` is what the folder holds beside tensors. `describe(args)` says what else the run's arguments are.
    """

    def __init__(self, folder, sizes, describe):
        self.sizes = sizes
        tensor, pipeline, virtual, expert = sizes
        parallel_state.initialize_model_parallel(tensor, pipeline, virtual if virtual > 1 else None, expert_model_parallel_size=expert)
        tensor_parallel.model_parallel_cuda_manual_seed(1)
        self.common = dist_checkpointing.load_common_state_dict(folder)
        self.args = self.common["args"]
        self.args.tensor_model_parallel_size, self.args.pipeline_model_parallel_size = tensor, pipeline
        self.args.expert_model_parallel_size = expert
        self.args.virtual_pipeline_model_parallel_size = virtual if virtual > 1 else None
        describe(self.args)
        self.parts = [mp_rank_model.build(self.args, stage, virtual) for stage in range(virtual)]
        self.names = ["model"] if virtual == 1 else [f"model{i}" for i in range(virtual)]
        self._load(folder)

    def sharded(self, metadata):
        """The parts as dist_checkpointing takes them."""
        groups = dict(metadata, dp_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True))
        return {name: part.sharded_state_dict(**peer.only(part.sharded_state_dict, metadata=groups)) for name, part in zip(self.names, self.parts)}

    def _load(self, folder):
        self.take(dist_checkpointing.load(self.sharded(self.common["content_metadata"]), folder, validate_access_integrity=False))

    def take(self, loaded):
        """The parts get the weights that were loaded into what `sharded` gave."""
        for name, part in zip(self.names, self.parts):
            missing, unexpected = part.load_state_dict(loaded[name], strict=False)
            assert not missing and all(key.endswith("_extra_state") for key in unexpected), (missing, unexpected)

    def weights(self):
        return {name: part.state_dict_for_save_checkpoint() for name, part in zip(self.names, self.parts)}

    def beginning(self, iteration, operations):
        """What every checkpoint of Megatron-LM begins with."""
        return {"args": self.args, "checkpoint_version": 3.0, "iteration": iteration, "num_floating_point_operations_so_far": operations}


def random_states():
    return [{"torch_rng_state": torch.get_rng_state(), "rng_tracker_states": {"model-parallel-rng": torch.cuda.get_rng_state()}}]


def _begin(number, ranks, store, body):
    os.environ.update(RANK=str(number), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=ranks)
    body()
    leave_together(ranks)


def run(ranks, body):
    """Calls `body` once a rank. The ranks are forks: what takes long is to import all that they need, and it is here already."""
    with tempfile.TemporaryDirectory() as scratch:
        torch.multiprocessing.start_processes(_begin, (ranks, os.path.join(scratch, "store"), body), nprocs=ranks, start_method="fork")
