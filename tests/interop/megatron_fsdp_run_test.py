"""Real Megatron-FSDP, over gloo, loads what our ranks saved, saves it again, and our ranks go on from that: tests/gpu/megatron_fsdp.py."""
import json
import os
import random
import subprocess
import sys

import pytest

import packages
import tools

sys.path.append(str(tools.ROOT / "tests/megatron"))

import megatron_flags  # noqa: E402, in the folder above

LENGTH, BATCH = 16, 4
# 97 tokens in 112 rows, as our settings and Megatron's flags say it.
MODEL = f"""
  bf16=true num_layers=2 hidden_size=32 ffn_hidden_size=44 num_attention_heads=4 num_query_groups=2 kv_channels=8 vocab_size=97 padded_vocab_size=112
  seq_length={LENGTH} global_batch_size={BATCH} micro_batch_size=2 lr=1e-2 lr_decay_style=constant weight_decay=0.1 clip_grad=1 transformer_impl=local
  shuffle=false packing=false
""".split()
FLAGS = f"""
  --bf16 --num-layers 2 --hidden-size 32 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --kv-channels 8 --ffn-hidden-size 44
  --seq-length {LENGTH} --max-position-embeddings {LENGTH} --vocab-size 97 --make-vocab-size-divisible-by 16 --position-embedding-type rope
  --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --lr 1e-2 --lr-decay-style constant --train-iters 20
  --global-batch-size {BATCH} --micro-batch-size 2 --clip-grad 1 --weight-decay 0.1
""".split()


def environment():
    site = os.pathsep.join(map(str, (packages.megatron_core("0.19.0"), packages.installed("einops==0.8.2"))))
    return os.environ | {"PYTHONPATH": site}


def test_loads_and_saves_what_our_ranks_saved(tmp_path):
    done = subprocess.run(
        [tools.PYTHONS["2.15.0"], "-W", "ignore", tools.ROOT / "tests/gpu/megatron_fsdp.py", "--bin", tools.BIN, "--device", "cpu", "--work", tmp_path / "work",
         "--only", "dense", "--only", "experts_divided"],
        capture_output=True, text=True, timeout=1200, env=environment())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert done.stdout.count(" ok: ") == 5, done.stdout
    assert done.stdout.endswith("all equal\n")


def train(data, metrics, exit_interval, *options):
    """Losses of our ranks."""
    settings = [f"data_path={data}", "train_iters=20", f"exit_interval={exit_interval}"]
    code, _, stderr = tools.run("ckpt-train", "train", "--ranks", 2, "--metrics", metrics, "--quiet", *options,
                                *(word for setting in settings for word in ("--set", setting)))
    assert code == 0, stderr
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]


def test_rows_that_pad_the_vocabulary_take_part_in_the_loss(tmp_path):
    """Megatron goes on from our run with the losses that ours has."""
    draw = random.Random(1)
    sequences = [[draw.randrange(97) for _ in range(LENGTH + 1)] for _ in range(4 * BATCH)]
    data = tmp_path / "examples.jsonl"
    data.write_text("".join(json.dumps({"input_ids": tokens, "loss_mask": [1] * len(tokens)}) + "\n" for tokens in sequences))
    train(data, tmp_path / "first.jsonl", 2, "--save", tmp_path / "ckpt", *(word for setting in MODEL for word in ("--set", setting)))
    ours = train(data, tmp_path / "metrics.jsonl", 4, "--load", tmp_path / "ckpt")

    flags = [*megatron_flags.COMMON, *megatron_flags.SHARDED, *FLAGS, "--load", str(tmp_path / "ckpt")]
    steps = [{"tokens": sequences[at : at + BATCH]} for at in range(2 * BATCH, 4 * BATCH, BATCH)]
    (tmp_path / "job.json").write_text(json.dumps({"flags": flags, "steps": steps, "gpus": 2}))
    done = subprocess.run(
        [tools.PYTHONS["2.15.0"], "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         tools.ROOT / "tests/interop/peers/megatron_fsdp.py", tmp_path / "job.json", tmp_path / "result.json"],
        capture_output=True, text=True, timeout=600,
        env=environment() | {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "NO_VCS_VERSION": "1", "CUDA_VISIBLE_DEVICES": "0,1"})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    theirs = [step["loss"] for step in json.loads((tmp_path / "result.json").read_text())["steps"]]
    assert ours == [pytest.approx(loss, rel=2e-3) for loss in theirs]
