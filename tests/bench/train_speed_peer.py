#!/usr/bin/env python3
"""Transformers' side of bench_training.py: writes the models, and trains them in float32 or, as torch.autocast does, in bfloat16, eagerly or compiled.

    train_speed_peer.py make OUT --model dense|moe|deepseek|tiny
    train_speed_peer.py run REPOSITORY [--batch 4] [--seq 256] [--steps 8] [--warmup 2] [--threads 2] [--fused] [--compile] [--bf16]
    train_speed_peer.py ceiling [--threads 2] PRODUCTS

`run` prints one JSON document with the same fields as build/…/bin/train_speed. Needs torch and transformers.
"""
import argparse
import json
import time

import numpy as np
import torch
import transformers

COMMON = dict(vocab_size=8192, max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=False, initializer_range=0.02,
              attention_dropout=0.0, use_cache=False, bos_token_id=0, eos_token_id=1, pad_token_id=None)


def configuration(model):
    """About 20 million parameters each, but of the tiny one; of the mixtures, in all."""
    if model == "dense":
        return transformers.LlamaConfig(hidden_size=384, num_hidden_layers=8, num_attention_heads=6, num_key_value_heads=3, head_dim=64,
                                        intermediate_size=1024, **COMMON)
    if model == "moe":
        return transformers.Qwen3MoeConfig(hidden_size=256, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                                           intermediate_size=512, moe_intermediate_size=448, num_experts=8, num_experts_per_tok=2,
                                           norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], output_router_logits=False,
                                           **COMMON)
    if model == "deepseek":
        return transformers.DeepseekV3Config(hidden_size=256, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=4,
                                             q_lora_rank=128, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=64,
                                             intermediate_size=1024, moe_intermediate_size=320, n_routed_experts=8, num_experts_per_tok=4,
                                             n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=1.0,
                                             first_k_dense_replace=1, norm_topk_prob=True, **COMMON)
    if model == "tiny":  # to see that everything runs
        return transformers.LlamaConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                                        intermediate_size=48, **COMMON)
    raise SystemExit(f"no such model: {model}")


def make(args):
    torch.manual_seed(1234)
    config = configuration(args.model)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(args.out)


def draw(first, count):
    """SplitMix64 of first + 1 … first + count: what train_speed.cc computes."""
    with np.errstate(over="ignore"):
        z = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def run(args):
    torch.set_num_threads(args.threads)
    options = dict(dtype=torch.float32, attn_implementation="sdpa")
    if args.experts:
        options["experts_implementation"] = args.experts
    model = transformers.AutoModelForCausalLM.from_pretrained(args.repository, **options)
    model.train()
    forward = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True if args.fused else None)
    count = args.batch * args.seq
    seconds, losses = [], []
    for step in range(args.warmup + args.steps):
        tokens = torch.from_numpy((draw(step * count, count) % np.uint64(model.config.vocab_size)).astype(np.int64))
        tokens = tokens.reshape(args.batch, args.seq)
        started = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            loss = forward(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step >= args.warmup:
            seconds.append(time.perf_counter() - started)
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "tokens": count, "seconds": seconds, "losses": losses}))


def ceiling(args):
    """GFLOP/s of the float32 products [m, n, k, count] of a step alone: the best time of each."""
    torch.set_num_threads(args.threads)
    flops = seconds = 0
    for m, n, k, count in json.loads(args.products):
        a, b, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
        best = float("inf")
        ends = time.perf_counter() + 0.3
        while time.perf_counter() < ends:
            started = time.perf_counter()
            torch.mm(a, b, out=c)
            best = min(best, time.perf_counter() - started)
        flops += 2 * m * n * k * count
        seconds += best * count
    print(json.dumps({"flops": flops, "gflops": flops / seconds / 1e9}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("make")
    verb.add_argument("out")
    verb.add_argument("--model", required=True)
    verb.set_defaults(do=make)
    verb = verbs.add_parser("run")
    verb.add_argument("repository")
    for name, default in {"batch": 4, "seq": 256, "steps": 8, "warmup": 2, "threads": 2}.items():
        verb.add_argument(f"--{name}", type=int, default=default)
    verb.add_argument("--lr", type=float, default=1e-3)
    verb.add_argument("--fused", action="store_true", help="torch's fused AdamW in place of its default")
    verb.add_argument("--compile", action="store_true", help="the model under torch.compile; the warm-up steps compile it")
    verb.add_argument("--bf16", action="store_true", help="torch.autocast to bfloat16; weights are float32")
    verb.add_argument("--experts", help="Transformers' experts_implementation, in place of its default")
    verb.set_defaults(do=run)
    verb = verbs.add_parser("ceiling")
    verb.add_argument("products", help="JSON, as train_speed --profile lists them")
    verb.add_argument("--threads", type=int, default=2)
    verb.set_defaults(do=ceiling)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
