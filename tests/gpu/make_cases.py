#!/usr/bin/env python3
"""Cases for megatron_loads.py: checkpoints that ckptkit wrote, what Megatron is told, and what ours computes next.

    tests/gpu/make_cases.py OUT [--load NAME=ROOT ...] [--bin build/release/bin]

Three come from `ckpt-convert hf-to-fsdp` and are loaded with `--finetune`; three are Megatron's own saves, which show that
the way of comparing is right; every `--load` adds what `ckpt-train` saved at ROOT, loaded with its optimizer. A case is a
folder: `ckpt/`, and `case.json` with `flags`, `meshes`, `iteration` and `steps`, each with its `tokens` and our numbers.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

from megatron_flags import flags_of

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 4
DENSE_MESHES = ["fsdp2", "fsdp4", "hsdp2x2"]
EXPERT_MESHES = [*DENSE_MESHES, "fsdp4_ep2", "hsdp2x2_ep2"]

# What a fine-tuning run adds to the model.
FINETUNE = """
  bf16=true seq_length=64 global_batch_size=32 lr=1e-3 min_lr=1e-4 lr_decay_style=cosine lr_warmup_iters=1 lr_decay_iters=10
  weight_decay=0.1
""".split()
# One micro-batch a rank on four ranks: where an expert's shard group is a single rank, Megatron-FSDP of core_v0.19.0 keeps
# the gradients of the last micro-batch only.
ONE_MICRO_BATCH = ["micro_batch_size=2"]
EXPERTS = ["micro_batch_size=8", "moe_router_load_balancing_type=aux_loss", "moe_aux_loss_coeff=1e-2"]

# Megatron would rank groups by as many experts as it takes from each, three here: by none of the scores that ours has.
LATENT = ["moe_router_bias_update_rate=1e-3", "moe_router_num_groups=1", "moe_router_group_topk=1"]

FROM_HF = {
    "hf_llama": ("llama-tied-fp32", []),
    "hf_qwen3_moe": ("qwen3moe-norm-bf16", EXPERTS),
    "hf_deepseek_v3": ("deepseekv3-mtp-bf16", [*EXPERTS, *LATENT]),
}
FROM_MEGATRON = {
    "megatron_dense_fsdp2": ("dense_fsdp2", []),
    "megatron_dense_hsdp2x2": ("dense_hsdp2x2", []),
    "megatron_moe_ep2_fsdp4": ("moe_ep2_fsdp4", ONE_MICRO_BATCH),
}


def draw_tokens(settings):
    """[step][sequence][token]; every second token follows from the one before it, so that there is something to learn."""
    draw = random.Random(20261121)
    vocab, length = settings["vocab_size"], settings["seq_length"] + 1

    def sequence():
        tokens = []
        while len(tokens) < length:
            token = draw.randrange(vocab)
            tokens += [token, (7 * token + 3) % vocab]
        return tokens[:length]

    return [[sequence() for _ in range(settings["global_batch_size"])] for _ in range(STEPS)]


class Maker:
    def __init__(self, out, binaries):
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

    def from_save(self, name, root, settings=()):
        shutil.copytree(root, self.folder(name) / "ckpt")
        for folder, _, files in os.walk(self.out / name):
            for path in [folder, *(os.path.join(folder, file) for file in files)]:
                os.chmod(path, 0o755 if path == folder else 0o644)  # the goldens are read-only
        self.write(name, ["--load", root], list(settings), [])

    def folder(self, name):
        path = self.out / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def write(self, name, source, settings, more_flags):
        arguments = [*source, *(argument for setting in settings for argument in ("--set", setting))]
        known = self.next_losses(name, arguments, [])["settings"]
        tokens = draw_tokens(known)
        ours = self.next_losses(name, arguments, tokens)
        for step, sequences in zip(ours["steps"], tokens):
            step["tokens"] = sequences
        case = {
            "flags": flags_of(ours["settings"], train_iters=max(known["lr_decay_iters"], 1)) + more_flags,
            "meshes": EXPERT_MESHES if known.get("num_experts") else DENSE_MESHES,
            "iteration": ours["iteration"],
            "steps": ours["steps"],
        }
        (self.out / name / "case.json").write_text(json.dumps(case))
        print(f"{name}: losses " + " ".join(f"{step['loss']:.5f}" for step in ours["steps"]))

    def next_losses(self, name, arguments, tokens):
        path = self.out / name / "tokens.json"
        path.write_text(json.dumps(tokens))
        text = self.run("next_losses", *arguments, "--tokens", path)
        path.unlink()
        return json.loads(text)


def golden_root(root):
    """CKPT_GOLDEN_DIR, else the whole tree beside the project, else the selection in it."""
    named = os.environ.get("CKPT_GOLDEN_DIR")
    candidates = [pathlib.Path(named)] if named else [root.parent / "shared" / "golden", root / "tests" / "golden"]
    return next(path for path in candidates if (path / "hf").is_dir())


def main():
    root = HERE.parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--load", action="append", default=[], metavar="NAME=ROOT", help="what ckpt-train saved")
    parser.add_argument("--bin", type=pathlib.Path, default=root / "build" / "release" / "bin")
    options = parser.parse_args()
    maker = Maker(options.out, options.bin)
    for group, cases, make in [("hf", FROM_HF, maker.from_hf), ("fsdp_dtensor", FROM_MEGATRON, maker.from_save)]:
        for name, (golden, settings) in cases.items():
            path = golden_root(root) / group / golden / "ckpt"
            if path.is_dir():
                make(name, path, settings)
            else:
                print(f"{name}: left out, no {path}")
    for name, _, saved in (text.partition("=") for text in options.load):
        maker.from_save(name, pathlib.Path(saved))


if __name__ == "__main__":
    main()
