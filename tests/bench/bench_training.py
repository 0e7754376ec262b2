#!/usr/bin/env python3
"""Tokens a second of one rank against the same model in Transformers, eager and compiled, in turn: prints one JSON document.

    $(tools/dev/venv torch-2.15.0) tests/bench/bench_training.py [--bin build/release/bin] [--models dense moe deepseek] [--rounds 5]

A case is a shape of the step: batch x sequence, in float32 or, with `:bf16`, in bfloat16. Both sides train from the same weights on the same
tokens, on as many threads; the numbers of parameters must be equal and the losses of every step must agree, or there is no result. Where 4
ranks can share the sequences, 2 and 4 of ours are timed beside one, on the same threads.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
LOSS_TOLERANCE = {"float32": 1e-4, "bfloat16": 1e-2}
RANKS = (2, 4)


def output_of(command):
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def check_same(model, ours, theirs, tolerance):
    if ours["parameters"] != theirs["parameters"]:
        raise SystemExit(f"{model}: {ours['parameters']} and {theirs['parameters']} parameters")
    for step, (a, b) in enumerate(zip(ours["losses"], theirs["losses"], strict=True)):
        if abs(a - b) > tolerance * abs(b):
            raise SystemExit(f"{model}: loss {a} and {b} in step {step}")


def attention_flops(config, batch, seq):
    """Two products forward, four backward, of the keys that a query sees: half of all."""
    if "kv_lora_rank" in config:
        width = config["qk_nope_head_dim"] + config["qk_rope_head_dim"] + config["v_head_dim"]
    else:
        width = 2 * config["head_dim"]
    return 3 * batch * seq * seq * width * config["num_attention_heads"] * config["num_hidden_layers"]


def measure(args, model, case, directory):
    shape, _, kind = case.partition(":")
    batch, seq = map(int, shape.split("x"))
    dtype = "bfloat16" if kind == "bf16" else "float32"
    peer = [sys.executable, BENCH / "train_speed_peer.py"]
    repository = directory / model
    if not repository.exists():
        subprocess.run([*peer, "make", repository, "--model", model], check=True, capture_output=True)
    options = ["--batch", batch, "--seq", seq, "--threads", args.threads, "--steps", args.steps, *(["--bf16"] if dtype == "bfloat16" else [])]
    sides = {"ours": [args.bin / "train_speed", repository, *options], "eager": [*peer, "run", repository, *options],
             "fused": [*peer, "run", repository, *options, "--fused"],
             "compiled": [*peer, "run", repository, *options, "--fused", "--compile"]}
    for ranks in RANKS if batch % max(RANKS) == 0 else ():
        sides[f"ranks{ranks}"] = [*sides["ours"], "--ranks", ranks]
    seconds = {name: [] for name in sides}
    for _ in range(args.rounds):
        results = {name: output_of(command) for name, command in sides.items()}
        for name in results.keys() - {"ours"}:
            check_same(f"{model}, {name}", results["ours"], results[name], LOSS_TOLERANCE[dtype])
        for name, result in results.items():
            seconds[name].append(statistics.median(result["seconds"]))
    tokens = batch * seq
    profile = output_of([*sides["ours"], "--profile"])
    limit = output_of([*peer, "ceiling", "--threads", args.threads, json.dumps(profile["products"])])
    config = json.loads((repository / "config.json").read_text())
    rates = {name: sorted(tokens / s for s in times) for name, times in seconds.items()}
    return {"model": model, "type": config["model_type"], "batch": batch, "seq": seq, "dtype": dtype, "threads": args.threads, "rounds": args.rounds,
            "steps": args.steps, "parameters": results["ours"]["parameters"], "tokens_per_second": rates,
            "ratio": statistics.median(e / o for o, e in zip(seconds["ours"], seconds["eager"])),
            "ratio_fused": statistics.median(e / o for o, e in zip(seconds["ours"], seconds["fused"])),
            "ratio_compiled": statistics.median(e / o for o, e in zip(seconds["ours"], seconds["compiled"])),
            "ratio_ranks": {side: statistics.median(o / e for o, e in zip(seconds["ours"], seconds[side])) for side in seconds if side.startswith("ranks")},
            "loss_difference": max(abs(a - b) / b for a, b in zip(results["ours"]["losses"], results["eager"]["losses"])),
            "flops": limit["flops"] + attention_flops(config, batch, seq), "ceiling_gflops": limit["gflops"], "ledger": profile["ledger"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parents[1] / "build" / "release" / "bin")
    parser.add_argument("--models", nargs="+", default=["dense", "moe", "deepseek"])
    parser.add_argument("--shapes", nargs="+", default=["4x256", "1x512", "4x256:bf16"], help="batch x sequence [:bf16]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        results = [measure(args, model, case, pathlib.Path(directory)) for model in args.models for case in args.shapes]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
