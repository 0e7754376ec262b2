#!/usr/bin/env python3
"""Losses of the benchmark's models on one GPU, step by step, beside those of a PyTorch trainer that starts from the same weights and tokens.

    python3 tests/gpu/losses.py --bin build/cuda/bin --peer peer_fsdp2.py --model d1 --model m1 [--balanced] [--steps 30] [--lr 3e-5] [--bound 4e-3]

Each model is trained twice by the peer and once by ours. Two runs of the peer part as well, because its attention adds in another order each time, and the larger
the learning rate, the sooner: so how far its own two runs part is printed beside. Exits with 1 if a loss of ours is further than --bound from that of the peer's
first run.
"""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile


def record_peer(peer, out, options):
    """Runs the peer in this process, and writes the loss of each step to `out`. The peer itself keeps the first and the last."""
    import torch

    spec = importlib.util.spec_from_file_location("peer", peer)
    module = importlib.util.module_from_spec(spec)
    sys.modules["peer"] = module
    spec.loader.exec_module(module)
    losses = []

    def record_steps(step, numbers):
        of_steps = [step(number) for number in numbers]
        torch.cuda.synchronize()
        losses.extend(loss.item() for loss in of_steps)
        return [1.0] * len(losses), of_steps[-1]

    module.timed_steps = record_steps
    sys.argv = [str(peer), *options]
    module.main()
    pathlib.Path(out).write_text(json.dumps(losses))


def run(command, limit):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=limit)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def options_of(args, model):
    return ["--model", model, "--warmup", 1, "--steps", args.steps - 1, *(["--balanced"] if args.balanced and model.startswith("m") else [])]


def peer_losses(args, model):
    """Of all steps but the first, which the peer runs by itself."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run([sys.executable, __file__, "--record-peer", args.peer, file.name, "--sharding", "none", "--lr", args.lr, *options_of(args, model)], args.limit)
        return json.load(file)


def our_losses(args, model):
    command = [args.bin / "ckpt-train", "bench", "--device", "cuda", "--json", "--quiet", "--set", "main_grads_dtype=bf16", "--set", "loss_chunk_tokens=16384",
               "--set", f"lr={args.lr}", *options_of(args, model)]
    return json.loads(run(command, args.limit))["losses"][1:]


def compare(args, model):
    """How far ours is from the peer, at most."""
    peer, again, ours = peer_losses(args, model), peer_losses(args, model), our_losses(args, model)
    assert len(peer) == len(again) == len(ours) == args.steps - 1
    apart = [abs(a - b) for a, b in zip(peer, ours)]
    itself = [abs(a - b) for a, b in zip(peer, again)]
    print(f"{model} lr {args.lr}: {args.steps} losses, {peer[0]:.4f} to {peer[-1]:.4f}; ours {max(apart):.1e} from the peer's at most, the peer's two runs {max(itself):.1e}",
          flush=True)
    for steps in range(10, args.steps + 1, 10):
        print(f"  the first {steps}: {max(apart[: steps - 1]):.1e}; the peer's two runs {max(itself[: steps - 1]):.1e}", flush=True)
    return max(apart)


def main():
    if sys.argv[1:2] == ["--record-peer"]:
        return record_peer(sys.argv[2], sys.argv[3], sys.argv[4:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--peer", type=pathlib.Path, required=True)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--balanced", action="store_true", help="experts get the same number of tokens each, on both sides")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--bound", type=float, default=4e-3)
    parser.add_argument("--limit", type=float, default=240, help="seconds of one run")
    args = parser.parse_args()
    sys.exit(max(compare(args, model) for model in args.model) > args.bound)


if __name__ == "__main__":
    main()
