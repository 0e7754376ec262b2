"""One rank of a Megatron-LM job that loads a checkpoint and trains on given tokens.

    torchrun --nproc-per-node N megatron_rank.py JOB.json RESULT.json

JOB.json: `flags` (Megatron's command line), `steps`, each with its `tokens`, and `gpus`, how many there are. With `--save` among the flags, what was
loaded is saved there before the first step. Arguments, process groups, model, Megatron-FSDP, optimizer, scheduler, load_checkpoint, save_checkpoint and
train_step are Megatron's own; `megatron_stand_ins` says what is not.
"""

import json
import os
import sys

import megatron_stand_ins
import torch
from megatron.core import __version__ as megatron_version
from megatron.core import parallel_state
from megatron.core.distributed import finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.utils import get_model_config
from megatron.training import checkpointing, get_args, initialize, training
from megatron.training.arguments import core_transformer_config_from_args, parse_and_validate_args


def build_model(pre_process=True, post_process=True, config=None, pg_collection=None, **_):
    args = get_args()
    config = config or core_transformer_config_from_args(args)
    layers = get_gpt_decoder_block_spec(
        config, use_transformer_engine=False, normalization=args.normalization, qk_l2_norm=args.qk_l2_norm)
    if args.multi_latent_attention:
        for layer in layers.layer_specs:
            layer.submodules.self_attention.submodules.core_attention = megatron_stand_ins.LatentAttention
    return GPTModel(
        config=config,
        transformer_layer_spec=layers,
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type,
        rotary_percent=args.rotary_percent,
        rotary_base=args.rotary_base,
        pg_collection=pg_collection)


def micro_batches(tokens, args):
    """This rank's: of consecutive runs of micro_batch_size sequences, every data-parallel-size-th one."""
    ranks, rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    size, length = args.micro_batch_size, args.seq_length
    masked = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1).cuda()
    for first in range(rank * size, len(tokens), ranks * size):
        rows = torch.tensor(tokens[first:first + size]).cuda()
        yield {"input_ids": rows[:, :-1].contiguous(), "labels": rows[:, 1:].contiguous(), "attention_mask": masked,
               "position_ids": torch.arange(length).cuda().expand(size, length)}


def forward_step(batches, model, *_):
    losses = model(**next(batches)).float()
    count = torch.tensor(losses.numel(), dtype=torch.int).cuda()

    def sum_and_count(output):
        total = output.float().sum()
        return total, count, {"lm loss": torch.stack([total.detach(), count.float()])}

    return losses, sum_and_count


def train(steps, model, optimizer, scheduler, config, args):
    """[{step, loss, grad_norm, lr}], `step` counted from 1 as finished iterations are."""
    reports = []
    for step in steps:
        lr = max(group["lr"] for group in optimizer.param_groups)
        losses, skipped, _, _, _, grad_norm, *_ = training.train_step(
            forward_step, micro_batches(step["tokens"], args), model, optimizer, scheduler, config,
            get_forward_backward_func(), iteration=args.iteration)
        if skipped:
            raise RuntimeError("Megatron skipped a step: a gradient is not finite")
        args.consumed_train_samples += args.global_batch_size
        args.iteration += 1
        reports.append({"step": args.iteration, "loss": float(losses["lm loss"]), "grad_norm": float(grad_norm),
                        "lr": float(lr)})
    return reports


def take_gpu(gpus):
    """This rank's GPU; more ranks than GPUs share them.

    NCCL refuses two ranks of one host on one GPU, so ranks that share are hosts of their own to it and talk over sockets.
    """
    rank = int(os.environ["LOCAL_RANK"])
    if int(os.environ["LOCAL_WORLD_SIZE"]) > gpus:
        os.environ.update(CUDA_VISIBLE_DEVICES=str(rank % gpus), LOCAL_RANK="0", NCCL_HOSTID=f"rank{rank}",
                          NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")


def main():
    job_path, result_path = sys.argv[1:]
    with open(job_path) as file:
        job = json.load(file)
    sys.argv = ["megatron_rank.py", *job["flags"]]
    take_gpu(job["gpus"])

    megatron_stand_ins.install()
    initialize._compile_dependencies = lambda: None  # the C++ index of Megatron's data sets, which are not used
    args = parse_and_validate_args()
    initialize.initialize_megatron()
    # Loads, strictly: a key that Megatron asks for and the checkpoint lacks is an error.
    model, optimizer, scheduler = training.setup_model_and_optimizer(ModelType.encoder_or_decoder, build_model)
    loaded_iteration = args.iteration
    if args.save:
        checkpointing.save_checkpoint(
            args.iteration, model, optimizer, scheduler, args.num_floating_point_operations_so_far)

    config = get_model_config(model[0])
    config.grad_scale_func = optimizer.scale_loss  # as training.train does before its loop
    config.finalize_model_grads_func = finalize_model_grads
    if args.overlap_grad_reduce:
        config.no_sync_func = model[0].no_sync
    for chunk in model:
        chunk.train()

    reports = train(job["steps"], model, optimizer, scheduler, config, args)
    if torch.distributed.get_rank() == 0:
        software = {"megatron-core": megatron_version, "torch": torch.__version__, "device": torch.cuda.get_device_name()}
        with open(result_path, "w") as file:
            json.dump({"iteration": loaded_iteration, "steps": reports, "software": software}, file)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
