#!/usr/bin/env python3
"""Cases for megatron_loads.py: checkpoints that ckptkit wrote, what Megatron is told, and what ours computes next.

    tests/megatron/make_cases.py OUT [--load NAME=ROOT ...] [--bin build/release/bin]

Three come from `ckpt-convert hf-to-fsdp` and are loaded with `--finetune`; two `ckpt-train` saved after five steps on four
ranks, loaded with their optimizers, as is whatever else it saved at a ROOT; three are Megatron's own saves, which show that the
way of comparing is right. A case is a folder: `ckpt/`, and `case.json` with `iteration`, `meshes`, and for each number of `ranks` the `flags` and the `steps` with their
`tokens` and our numbers.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

from megatron_flags import MESHES, flags_of

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 4
DENSE_MESHES = ["fsdp2", "hsdp2x1", "fsdp4", "hsdp2x2"]
EXPERT_MESHES = [*DENSE_MESHES, "fsdp2_ep2", "fsdp4_ep2", "hsdp2x2_ep2"]

# What a fine-tuning run adds to the model.
FINETUNE = """
  bf16=true seq_length=64 global_batch_size=32 lr=1e-3 min_lr=1e-4 lr_decay_style=cosine lr_warmup_iters=1 lr_decay_iters=10
  weight_decay=0.1
""".split()
EXPERTS = ["moe_router_load_balancing_type=aux_loss", "moe_aux_loss_coeff=1e-2"]

# Megatron would rank groups by as many experts as it takes from each, three here: by none of the scores that ours has.
LATENT = ["moe_router_bias_update_rate=1e-3", "moe_router_num_groups=1", "moe_router_group_topk=1"]

FROM_HF = {
    "hf_llama": ("llama-tied-fp32", []),
    "hf_qwen3_moe": ("qwen3moe-norm-bf16", EXPERTS),
    "hf_deepseek_v3": ("deepseekv3-mtp-bf16", [*EXPERTS, *LATENT]),
}
# What `ckpt-train` trains from Hugging Face files with four ranks: HFSDP, and HSDP with experts over two.
HSDP = ["num_distributed_optimizer_instances=2"]
FROM_TRAINING = {
    "ours_dense": ("llama-tied-fp32", [*HSDP, "outer_dp_sharding_strategy=optim"]),
    "ours_moe": ("qwen3moe-norm-bf16", [*HSDP, "expert_model_parallel_size=2"]),
}
TRAIN = """
  bf16=true transformer_impl=local seq_length=32 global_batch_size=8 lr=2e-3 lr_decay_style=cosine lr_decay_iters=20 lr_warmup_iters=2
  train_iters=20 exit_interval=5 weight_decay=0.1
""".split()

FROM_MEGATRON = {
    "megatron_dense_fsdp2": "dense_fsdp2",
    "megatron_dense_hsdp2x2": "dense_hsdp2x2",
    "megatron_moe_ep2_fsdp4": "moe_ep2_fsdp4",
}


def draw_sequence(draw, vocab, length):
    """[token]; every second token follows from the one before it, so that there is something to learn."""
    tokens = []
    while len(tokens) < length:
        token = draw.randrange(vocab)
        tokens += [token, (7 * token + 3) % vocab]
    return tokens[:length]


def as_json(settings):
    """Settings as ckpt-train's --set takes them, as one JSON object."""
    values = {}
    for name, value in (setting.split("=", 1) for setting in settings):
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value  # plain text
    return json.dumps(values)


def draw_tokens(settings):
    """[step][sequence][token] to compute losses on."""
    draw = random.Random(20261121)
    vocab, length = settings["vocab_size"], settings["seq_length"] + 1
    return [[draw_sequence(draw, vocab, length) for _ in range(settings["global_batch_size"])] for _ in range(STEPS)]


class Maker:
    def __init__(self, out, binaries):
        out.mkdir(parents=True, exist_ok=True)
        self.out = out
        self.binaries = binaries

    def run(self, tool, *arguments):
        done = subprocess.run([self.binaries / tool, *arguments], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{tool} {' '.join(map(str, arguments))}\n{done.stderr}")
        return done.stdout

    def from_hf(self, name, repository, settings):
        checkpoint = self.folder(name) / "ckpt"
        self.run("ckpt-convert", "hf-to-fsdp", repository, checkpoint, "--transformer-impl", "local", "--quiet")
        self.write(name, ["--init", f"hf:{repository}"], FINETUNE + settings, ["--finetune"])

    def from_training(self, name, repository, settings, ranks=4, device="cpu"):
        root, tokens = self.out / f"{name}.save", self.out / f"{name}.jsonl"
        shutil.rmtree(root, ignore_errors=True)
        draw, vocab = random.Random(7), json.loads((repository / "config.json").read_text())["vocab_size"]
        tokens.write_text("".join(json.dumps({"input_ids": draw_sequence(draw, vocab, 33)}) + "\n" for _ in range(64)))
        assignments = [argument for setting in TRAIN + settings for argument in ("--set", setting)]
        self.run("ckpt-train", "train", "--init", f"hf:{repository}", "--device", device, "--ranks", str(ranks), *assignments,
                 "--set", f"data_path={tokens}", "--save", root)
        self.from_save(name, root)
        shutil.rmtree(root)
        tokens.unlink()

    def from_save(self, name, root):
        checkpoint = self.folder(name) / "ckpt"
        shutil.copytree(root, checkpoint, copy_function=shutil.copyfile)
        for folder in [checkpoint, *(path for path in checkpoint.rglob("*") if path.is_dir())]:
            folder.chmod(0o755)  # the goldens are read-only
        self.write(name, ["--load", root], [], [])

    def folder(self, name):
        path = self.out / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def write(self, name, source, settings, more_flags):
        plain = self.next_losses(name, source, settings, [])
        known, tokens = plain["settings"], draw_tokens(plain["settings"])
        train_iters = known["train_iters"] or max(known["lr_decay_iters"], 1)
        meshes = EXPERT_MESHES if known.get("num_experts") else DENSE_MESHES
        case = {"iteration": plain["iteration"], "meshes": meshes, "ranks": {}}
        for ranks in sorted({MESHES[mesh][0] for mesh in meshes}):
            # One micro-batch a rank: where a shard group is a single rank, Megatron-FSDP of core_v0.19.0 keeps the
            # gradients of one micro-batch only.
            micro_batch_size = f"micro_batch_size={known['global_batch_size'] // ranks}"
            ours = self.next_losses(name, source, [*settings, micro_batch_size], tokens)
            case["ranks"][ranks] = {
                "flags": flags_of(ours["settings"], train_iters) + more_flags,
                "steps": [{"tokens": sequences, **step} for step, sequences in zip(ours["steps"], tokens)],
            }
        (self.out / name / "case.json").write_text(json.dumps(case))
        print(f"{name}: losses " + " ".join(f"{step['loss']:.5f}" for step in ours["steps"]))

    def next_losses(self, name, source, settings, tokens):
        path = self.out / name / "tokens.json"
        path.write_text(json.dumps(tokens))
        text = self.run("next_losses", *source, "--settings", as_json(settings), "--tokens", path)
        path.unlink()
        return json.loads(text)


def golden_root(root):
    """CKPT_GOLDEN_DIR, else the whole tree beside the project, else the selection in it."""
    named = os.environ.get("CKPT_GOLDEN_DIR")
    candidates = [pathlib.Path(named)] if named else [root.parent / "shared" / "golden", root / "tests" / "golden"]
    return next(path for path in candidates if (path / "hf").is_dir())


def present(path):
    """`path`, unless only a selection of the goldens is here."""
    if path.is_dir():
        return path
    print(f"left out: no {path}")
    return None


def main():
    root = HERE.parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--load", action="append", default=[], metavar="NAME=ROOT", help="what ckpt-train saved")
    parser.add_argument("--bin", type=pathlib.Path, default=root / "build" / "release" / "bin")
    options = parser.parse_args()
    maker = Maker(options.out, options.bin)
    golden = golden_root(root)
    for name, (repository, settings) in FROM_HF.items():
        if path := present(golden / "hf" / repository / "ckpt"):
            maker.from_hf(name, path, settings)
    for name, (repository, settings) in FROM_TRAINING.items():
        if path := present(golden / "hf" / repository / "ckpt"):
            maker.from_training(name, path, settings)
    for name, case in FROM_MEGATRON.items():
        if path := present(golden / "fsdp_dtensor" / case / "ckpt"):
            maker.from_save(name, path)
    for name, _, saved in (text.partition("=") for text in options.load):
        maker.from_save(name, pathlib.Path(saved))


if __name__ == "__main__":
    main()
