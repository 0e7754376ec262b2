#!/usr/bin/env python3
"""Writes a synthetic Hugging Face repository of the Qwen3-MoE or gpt-oss shape, for throughput measurements. Needs only numpy.

    make_model.py OUT --gb 8 [--shard-gb 2] [--seed 1] [--fp8 | --gpt-oss]

Widths are those of Qwen3-30B-A3B or gpt-oss-20b; the number of layers, and for small sizes experts and vocabulary, follow from --gb.
Values are random bfloat16 of ordinary magnitude, drawn from the seed; one tensor is in memory at a time. Shards are
filled in the order of the module tree, as `save_pretrained` fills them. With --fp8 the projections are float8_e4m3fn with a
scale for each block of 128 by 128, as DeepSeek-V3 is published; --gb is the size of the same model in bfloat16.
"""
import argparse
import json
import math
import pathlib
import struct

import numpy as np

HIDDEN, HEADS, GROUPS, HEAD_DIM, EXPERT_WIDTH = 2048, 32, 4, 128, 768
OSS_HIDDEN, OSS_HEADS, OSS_GROUPS, OSS_HEAD_DIM, OSS_EXPERT_WIDTH = 2880, 64, 8, 64, 2880
BF16_BYTES = 2
BLOCK_ELEMENTS = 16 << 20
FP8_BLOCK = 128


def elements(shape):
    return int(np.prod(shape, dtype=np.int64))


def qwen3_moe_layer(i, experts):
    at = f"model.layers.{i}."
    yield at + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
    yield at + "self_attn.k_proj.weight", (GROUPS * HEAD_DIM, HIDDEN)
    yield at + "self_attn.v_proj.weight", (GROUPS * HEAD_DIM, HIDDEN)
    yield at + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
    yield at + "self_attn.q_norm.weight", (HEAD_DIM,)
    yield at + "self_attn.k_norm.weight", (HEAD_DIM,)
    yield at + "mlp.gate.weight", (experts, HIDDEN)
    for e in range(experts):
        for part in ("gate", "up"):
            yield f"{at}mlp.experts.{e}.{part}_proj.weight", (EXPERT_WIDTH, HIDDEN)
        yield f"{at}mlp.experts.{e}.down_proj.weight", (HIDDEN, EXPERT_WIDTH)
    yield at + "input_layernorm.weight", (HIDDEN,)
    yield at + "post_attention_layernorm.weight", (HIDDEN,)


def gpt_oss_layer(i, experts):
    at = f"model.layers.{i}."
    widths = {"q": OSS_HEADS * OSS_HEAD_DIM, "k": OSS_GROUPS * OSS_HEAD_DIM, "v": OSS_GROUPS * OSS_HEAD_DIM}
    for part, width in widths.items():
        yield f"{at}self_attn.{part}_proj.weight", (width, OSS_HIDDEN)
        yield f"{at}self_attn.{part}_proj.bias", (width,)
    yield at + "self_attn.o_proj.weight", (OSS_HIDDEN, OSS_HEADS * OSS_HEAD_DIM)
    yield at + "self_attn.o_proj.bias", (OSS_HIDDEN,)
    yield at + "self_attn.sinks", (OSS_HEADS,)
    yield at + "mlp.router.weight", (experts, OSS_HIDDEN)
    yield at + "mlp.router.bias", (experts,)
    yield at + "mlp.experts.gate_up_proj", (experts, OSS_HIDDEN, 2 * OSS_EXPERT_WIDTH)
    yield at + "mlp.experts.gate_up_proj_bias", (experts, 2 * OSS_EXPERT_WIDTH)
    yield at + "mlp.experts.down_proj", (experts, OSS_EXPERT_WIDTH, OSS_HIDDEN)
    yield at + "mlp.experts.down_proj_bias", (experts, OSS_HIDDEN)
    yield at + "input_layernorm.weight", (OSS_HIDDEN,)
    yield at + "post_attention_layernorm.weight", (OSS_HIDDEN,)


def plan(total_bytes, layer, hidden):
    """Tensors in file order, experts, layers, vocabulary: `total_bytes` rounded up to whole layers."""
    vocabulary, experts = 151936, 128
    while BF16_BYTES * 2 * vocabulary * hidden > total_bytes / 4 and vocabulary > 256:
        vocabulary //= 2
    ends = BF16_BYTES * 2 * vocabulary * hidden
    layer_bytes = lambda: sum(BF16_BYTES * elements(shape) for _, shape in layer(0, experts))
    while layer_bytes() > (total_bytes - ends) / 2 and experts > 4:
        experts //= 2
    layers = max(1, math.ceil((total_bytes - ends) / layer_bytes()))
    tensors = [("model.embed_tokens.weight", (vocabulary, hidden))]
    for i in range(layers):
        tensors += layer(i, experts)
    tensors += [("model.norm.weight", (hidden,)), ("lm_head.weight", (vocabulary, hidden))]
    return tensors, experts, layers, vocabulary


def qwen3_moe_config(experts, layers, vocabulary):
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": HIDDEN, "head_dim": HEAD_DIM,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "vocab_size": vocabulary,
        "intermediate_size": 6144, "moe_intermediate_size": EXPERT_WIDTH, "num_experts": experts,
        "num_experts_per_tok": min(8, experts), "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "max_position_embeddings": 40960,
        "attention_bias": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 151643,
        "eos_token_id": 151645,
    }


def gpt_oss_config(experts, layers, vocabulary):
    return {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": OSS_HIDDEN, "head_dim": OSS_HEAD_DIM,
        "num_hidden_layers": layers, "num_attention_heads": OSS_HEADS, "num_key_value_heads": OSS_GROUPS, "vocab_size": vocabulary,
        "intermediate_size": OSS_EXPERT_WIDTH, "num_local_experts": experts, "num_experts_per_tok": min(4, experts),
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)], "sliding_window": 128,
        "hidden_act": "silu", "swiglu_limit": 7.0, "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "max_position_embeddings": 131072,
        "attention_bias": True, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 199998, "eos_token_id": 200002,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                         "original_max_position_embeddings": 4096},
    }


def stored(name, shape, is_fp8):
    """What a weight is stored as: name, shape, the header's dtype, bytes of an element."""
    if not is_fp8 or not name.endswith("_proj.weight"):
        return [(name, shape, "BF16", BF16_BYTES)]
    blocks = tuple(-(-n // FP8_BLOCK) for n in shape)
    return [(name, shape, "F8_E4M3", 1), (name + "_scale_inv", blocks, "F32", 4)]


def shards_of(tensors, shard_bytes, is_fp8):
    shards, used = [[]], 0
    for name, shape, dtype, width in (part for tensor in tensors for part in stored(*tensor, is_fp8)):
        size = width * elements(shape)
        if shards[-1] and used + size > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append((name, shape, dtype, width))
        used += size
    return shards


def random_bfloat16(rng, count):
    """Sign and mantissa at random, magnitudes between 2^-15 and 2: no zeros, infinities or NaNs."""
    words = rng.integers(0, 1 << 16, size=count, dtype=np.uint16)
    return (words & 0x87FF) | 0x3800


def random_elements(rng, dtype, count):
    if dtype == "BF16":
        return random_bfloat16(rng, count)
    if dtype == "F32":
        return rng.uniform(1e-4, 1e-3, size=count).astype(np.float32)
    codes = rng.integers(0, 1 << 8, size=count, dtype=np.uint8)
    return np.where(codes & 0x7F == 0x7F, 0, codes).astype(np.uint8)  # no NaNs


def write_shard(path, shard, rng):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, dtype, width in shard:
        end = at + width * elements(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, shape, dtype, _ in shard:
            left = elements(shape)
            while left:
                count = min(left, BLOCK_ELEMENTS)
                file.write(random_elements(rng, dtype, count).tobytes())
                left -= count
    return at


def make(out, total_bytes, shard_bytes, seed=1, is_fp8=False, is_gpt_oss=False):
    out.mkdir(parents=True, exist_ok=True)
    layer, config, hidden = (gpt_oss_layer, gpt_oss_config, OSS_HIDDEN) if is_gpt_oss else (qwen3_moe_layer, qwen3_moe_config, HIDDEN)
    tensors, experts, layers, vocabulary = plan(total_bytes, layer, hidden)
    shards = shards_of(tensors, shard_bytes, is_fp8)
    rng = np.random.default_rng(seed)
    weight_map, total = {}, 0
    for i, shard in enumerate(shards, 1):
        name = f"model-{i:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        total += write_shard(out / name, shard, rng)
        weight_map |= {key: name for key, *_ in shard}
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    settings = config(experts, layers, vocabulary)
    if is_fp8:
        settings["quantization_config"] = {
            "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [FP8_BLOCK, FP8_BLOCK]}
    (out / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return {"bytes": total, "tensors": len(tensors), "shards": len(shards), "layers": layers, "experts": experts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--gb", type=float, required=True, help="size in 10^9 bytes")
    parser.add_argument("--shard-gb", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--fp8", action="store_true")
    shape.add_argument("--gpt-oss", action="store_true")
    args = parser.parse_args()
    print(json.dumps(make(args.out, args.gb * 1e9, args.shard_gb * 1e9, args.seed, args.fp8, args.gpt_oss)))


if __name__ == "__main__":
    main()
