#!/usr/bin/env python3
"""Trains a model of Hugging Face files on a GPU, and lets Transformers judge what comes out.

    python3 tests/gpu/real_model.py --bin build/cuda/bin [--shape qwen3|deepseek] [--layers N] [--work DIR]

It makes a repository with random weights, of Qwen3-0.6B's shape or of DeepSeek-V3's at a smaller size (latent attention, sigmoid
scores, groups of experts, a shared expert), trains it from there, saves, resumes, trains the same steps in one piece, exports, and
asks Transformers for the loss of the result. Prints the speed of the whole run's later steps. Needs a GPU, torch and transformers. Exits with 1 where a figure
is not as it must be:

* two parts of a run have the losses of the whole run, bit for bit (deterministic_mode)
* the loss of the exported files by Transformers (float32, on the CPU or the GPU) is that of `ckpt-train evaluate` within 2e-5
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

STEPS = 6
SEQ = 1024


def run(*command):
    start = time.time()
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout, time.time() - start


def write_data(path, vocab, documents):
    draw = random.Random(7)
    with path.open("w") as file:
        for _ in range(documents):
            file.write(json.dumps({"input_ids": [draw.randrange(vocab) for _ in range(SEQ + 1)]}) + "\n")


def metrics_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def losses(path):
    return [step["loss"] for step in metrics_of(path)]


def qwen3(transformers, layers):
    return transformers.Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=layers or 28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, rope_theta=1e6, max_position_embeddings=40960,
    )


def deepseek(transformers, layers):
    return transformers.DeepseekV3Config(
        vocab_size=32768, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_hidden_layers=layers or 8,
        num_attention_heads=16, num_key_value_heads=16, q_lora_rank=768, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, n_routed_experts=64, num_experts_per_tok=8, n_shared_experts=1, n_group=8, topk_group=4,
        first_k_dense_replace=1, max_position_embeddings=4096, tie_word_embeddings=False,
    )


SHAPES = {"qwen3": qwen3, "deepseek": deepseek}


def loss_by_transformers(repository, data):
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    model = AutoModelForCausalLM.from_pretrained(repository, dtype=torch.float32, attn_implementation="eager").to(device)
    total, count = 0.0, 0
    # Documents are one stream, cut into windows of SEQ tokens and the one after them.
    stream = [token for line in data.read_text().splitlines() for token in json.loads(line)["input_ids"]]
    with torch.no_grad():
        for first in range(0, (len(stream) - 1) // SEQ * SEQ, SEQ):
            window = torch.tensor([stream[first : first + SEQ + 1]], device=device)
            logits = model(window[:, :-1]).logits.double()
            total += torch.nn.functional.cross_entropy(logits[0], window[0, 1:], reduction="sum").item()
            count += SEQ
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3")
    parser.add_argument("--layers", type=int, help="instead of the shape's")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "real_model")
    args = parser.parse_args()
    import torch
    import transformers

    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    config = SHAPES[args.shape](transformers, args.layers)
    torch.manual_seed(1)
    repository = args.work / "model"
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(repository)
    train, valid = args.work / "train.jsonl", args.work / "valid.jsonl"
    write_data(train, config.vocab_size, 200)
    write_data(valid, config.vocab_size, 4)

    program = args.bin / "ckpt-train"

    def train_to(name, steps, *options):
        metrics = args.work / f"{name}.jsonl"
        save = args.work / name
        _, seconds = run(program, "--device", "cuda", "--save", save, "--metrics", metrics, "--set", f"train_iters={steps}",
                         "--set", "deterministic_mode=true", *options)
        print(f"{name}: {seconds:.1f} s, losses {losses(metrics)}")
        return save, losses(metrics)

    settings = ["--init", f"hf:{repository}", "--set", "bf16=true", "--set", f"seq_length={SEQ}", "--set", "micro_batch_size=8",
                "--set", "global_batch_size=8", "--set", "lr=1e-4", "--set", f"data_path={train}"]
    _, whole = train_to("whole", 2 * STEPS, *settings)
    later = metrics_of(args.work / "whole.jsonl")[STEPS:]
    print("speed: " + ", ".join(f"{name} {statistics.median(step[name] for step in later):.4g}"
                                for name in ("step_ms", "tokens_per_s", "mfu") if name in later[0]))
    part, first = train_to("part", STEPS, *settings)
    shutil.copy(args.work / "part.jsonl", args.work / "first.jsonl")
    _, both = train_to("part", 2 * STEPS, "--load", part, "--prove")
    exported, _ = train_to("exported", 2 * STEPS + 1, "--load", args.work / "whole", "--set", "save_format=hf")

    failures = []
    if first != whole[:STEPS] or both != whole:
        failures.append(f"parts of a run part from the whole: {both} and {whole}")
    export = max(path.parent for path in exported.rglob("config.json"))
    ours = json.loads(run(program, "evaluate", "--device", "cuda", "--init", f"hf:{export}", "--set", "params_dtype=fp32", "--set",
                          f"seq_length={SEQ}", "--set", f"data_path={valid}", "--set", "shuffle=false", "--json")[0])
    theirs = loss_by_transformers(export, valid)
    print(f"loss of the exported model: ours {ours['loss']:.7f}, Transformers {theirs:.7f}")
    if abs(ours["loss"] - theirs) > 2e-5:
        failures.append("Transformers has another loss for the exported model")
    for failure in failures:
        print("FAILED:", failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
