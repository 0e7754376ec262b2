#!/usr/bin/env python3
"""Trains a model of Hugging Face files on a GPU, and lets Transformers judge what comes out.

    python3 tests/gpu/real_model.py --bin build/cuda/bin [--layers 28] [--work DIR]

It makes a repository of Qwen3-0.6B's shape with random weights, trains it from there, saves, resumes, trains the same steps in one
piece, exports, and asks Transformers for the loss of the result. Needs a GPU, torch and transformers. Exits with 1 where a figure
is not as it must be:

* two parts of a run have the losses of the whole run, bit for bit (deterministic_mode)
* the loss of the exported files by Transformers (float32, on the CPU or the GPU) is that of `ckpt-train evaluate` within 2e-5
"""

import argparse
import json
import pathlib
import random
import shutil
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


def losses(path):
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


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
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "real_model")
    args = parser.parse_args()
    import torch
    import transformers

    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    config = transformers.Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=args.layers, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, rope_theta=1e6, max_position_embeddings=40960,
    )
    torch.manual_seed(1)
    repository = args.work / "model"
    transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(repository)
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
