#!/usr/bin/env python3
"""Steps of the benchmark's models on one or several GPUs, alternating with a PyTorch trainer in one run.

    python3 tests/gpu/beside_peer.py --bin build/cuda/bin --peer peer_fsdp2.py [--megatron-fsdp peer_megatron_fsdp.py] --gpus 2 --model d1 --model m1
        [--balanced] [--rounds 2] [--side NAME="OPTION ..."]... [--out FILE]

A round is the peer and then each side of ours; a side is a name and options of `ckpt-train bench` that come on top. Without --side there is one, with
gradients sent in bfloat16 and summed in float32, and with communication beside the computation where there are several GPUs. The peer is started by torchrun
where there are several GPUs and by `--sharding none` on one; --peer-options are more of its options.

With --megatron-fsdp a round has a second peer, the same model by Megatron-FSDP, which needs the wheels megatron-fsdp==0.6.1 and einops on PYTHONPATH and
imports the first peer from its own folder; --megatron-options are more of its options, as `@comm=bf16 @nofull`. It prints losses in four places.

Prints a line a run: milliseconds of the median step, tokens/s of a GPU, MFU over 989 TFLOP/s, peak memory of a GPU, first and last loss, what communication
costs (`--exposed`, ours alone), and the clock and power that nvidia-smi reads in the middle of the run; then how many times as fast each side is, from the
medians of its rounds. --out has all of it as JSON. Exits with 1 if a run fails, or if first losses are not within 2e-3 of a peer's: they start
from the same weights and tokens.
"""

import argparse
import json
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
GIB = 2**30
LOSS_BOUND = 2e-3
ONE_GPU = "--set main_grads_dtype=bf16 --set loss_chunk_tokens=16384"
SEVERAL_GPUS = ("--set overlap_grad_reduce=true --set overlap_param_gather=true --set grad_comm_dtype=bf16 --set loss_chunk_tokens=16384 "
                "--set data_parallel_sharding_strategy=optim_grads")


class Failed(Exception):
    pass


class Clocks:
    """What nvidia-smi reads once a second while a run goes on: the largest power of the first GPU, and its clock then."""

    def __init__(self):
        self.samples = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.sample)

    def sample(self):
        while not self.ended.wait(1):
            read = subprocess.run(["nvidia-smi", "--id=0", "--query-gpu=power.draw,clocks.sm", "--format=csv,noheader,nounits"], capture_output=True, text=True)
            if read.returncode == 0:
                self.samples.append(tuple(float(value) for value in read.stdout.split(",")))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def most(self):
        return dict(zip(("watts", "mhz"), max(self.samples))) if self.samples else {}


def run(command, limit):
    with Clocks() as clocks:
        try:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"{shlex.join(map(str, command))}: not done in {limit} s") from None
    if done.returncode != 0:
        raise Failed(f"{shlex.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout, clocks.most()


def common(args, model):
    return ["--balanced"] if args.balanced and model.startswith("m") else []  # those with experts


def torchrun(args, *program):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", args.gpus, *program]


def run_peer(args, model):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        start = [sys.executable, args.peer, "--sharding", "none"] if args.gpus == 1 else torchrun(args, args.peer)
        command = [*start, "--model", model, "--warmup", args.warmup, "--steps", args.steps, "--json", file.name, *common(args, model), *shlex.split(args.peer_options)]
        _, clocks = run(command, args.limit)
        result = json.load(file)
    return {"step_ms": result["step_ms"], "tokens_s": result["tokens_s_gpu"], "mfu": result["mfu"], "peak_gib": result["peak_gib"],
            "first_loss": result["first_loss"], "last_loss": result["last_loss"], **clocks}


def run_megatron_fsdp(args, model):
    command = [*torchrun(args, HERE / "megatron_fsdp_peer.py", args.megatron_fsdp), "--model", model, "--warmup", args.warmup, "--steps", args.steps, *common(args, model),
               *shlex.split(args.megatron_options)]
    text, clocks = run(command, args.limit)
    found = re.search(r"MFSDP .*: ([\d,]+) tok/s/GPU ([\d.]+) ms peak ([\d.]+) GiB loss ([\d.]+) -> ([\d.]+)", text)
    if not found:
        raise Failed(f"{shlex.join(map(str, command))}: printed no result\n{text[-2000:]}")
    tokens_s, step_ms, peak_gib, first_loss, last_loss = (float(number.replace(",", "")) for number in found.groups())
    return {"step_ms": step_ms, "tokens_s": tokens_s, "peak_gib": peak_gib, "first_loss": first_loss, "last_loss": last_loss, **clocks}


def run_ours(args, model, options):
    ranks = [] if args.gpus == 1 else ["--ranks", args.gpus, "--exposed"]
    command = [args.bin / "ckpt-train", "bench", "--device", "cuda", "--model", model, "--json", "--quiet", "--warmup", args.warmup, "--steps", args.steps,
               *ranks, *common(args, model), *shlex.split(options)]
    text, clocks = run(command, args.limit)
    result = json.loads(text)
    return {"step_ms": result["step_ms"], "tokens_s": result["tokens_s_rank"], "mfu": result["mfu"], "peak_gib": sum(result["peak_bytes"].values()) / GIB,
            "first_loss": result["losses"][0], "last_loss": result["losses"][-1], "exposed_ms": result.get("exposed_ms"), "phase_ms": result["phase_ms"], **clocks}


def line(model, side, result):
    exposed = "" if result.get("exposed_ms") is None else f"  exposed {result['exposed_ms']:5.1f} ms"
    mfu = f"MFU {100 * result['mfu']:.1f} %" if "mfu" in result else " " * 10
    clock = f"  {result['watts']:.0f} W at {result['mhz']:.0f} MHz" if "watts" in result else ""
    return (f"{model:4} {side:24} {result['step_ms']:7.1f} ms {result['tokens_s']:8.0f} tokens/s  {mfu}  {result['peak_gib']:5.1f} GiB"
            f"  loss {result['first_loss']:.5f} to {result['last_loss']:.5f}{exposed}{clock}")


def compare(args, model):
    sides = dict(side.split("=", 1) for side in args.side) if args.side else {"ours": ONE_GPU if args.gpus == 1 else SEVERAL_GPUS}
    peers = ({} if args.no_peer else {"peer": run_peer}) | ({"Megatron-FSDP": run_megatron_fsdp} if args.megatron_fsdp else {})
    results = {}
    for _ in range(args.rounds):
        for side in [*peers, *sides]:
            try:
                result = peers[side](args, model) if side in peers else run_ours(args, model, sides[side])
            except Failed as failure:
                print(f"{model} {side}: FAILED {failure}", flush=True)
                results.setdefault("failures", []).append(side)
                continue
            print(line(model, side, result), flush=True)
            results.setdefault(side, []).append(result)
    for side in sides:
        for peer in peers:
            if side not in results or peer not in results:
                continue
            median = {name: statistics.median(result["step_ms"] for result in results[name]) for name in (side, peer)}
            apart = max(abs(result["first_loss"] - results[peer][0]["first_loss"]) for result in results[side])
            if apart > LOSS_BOUND:
                results.setdefault("failures", []).append(side)
            print(f"{model:4} {side} is {median[peer] / median[side]:.3f} times as fast as {'the ' if peer == 'peer' else ''}{peer}; first losses are {apart:.1e} apart",
                  flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--peer", type=pathlib.Path)
    parser.add_argument("--no-peer", action="store_true", help="ours alone")
    parser.add_argument("--peer-options", default="")
    parser.add_argument("--megatron-fsdp", type=pathlib.Path, help="a second peer")
    parser.add_argument("--megatron-options", default="")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--balanced", action="store_true", help="experts get the same number of tokens each, on both sides")
    parser.add_argument("--side", action="append", metavar="NAME=OPTIONS")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--limit", type=float, default=240, help="seconds of one run")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if args.peer is None and not args.no_peer:
        parser.error("--peer names the other trainer, or --no-peer leaves it out")
    results = {model: compare(args, model) for model in args.model}
    if args.out:
        args.out.write_text(json.dumps(results, indent=1))
    sys.exit(any("failures" in result for result in results.values()))


if __name__ == "__main__":
    main()
