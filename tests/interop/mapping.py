"""Hugging Face names to Megatron names, written independently of the layout tables under test.

Sources: Megatron-Bridge's merge_qkv_weights for the interleave (per KV group: its query heads, then k, then v), the
names of Megatron-Core's Transformer Engine layers, Megatron-Bridge's Gemma for norms behind attention and MLP, and Megatron-FSDP's
split of a SwiGLU fc1 into `_w` (gate) and `_v` (up).
For gpt-oss Megatron-Bridge's gpt_oss_bridge.py: its experts are transposed, gate and up are every other row, and Megatron-FSDP splits nothing.
"""
import json
import re

import safetensors.torch
import torch

import hashing


def read_repository(folder):
    """All tensors of the safetensors files in `folder`, and its config.json."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= safetensors.torch.load_file(path)
    return tensors, json.loads((folder / "config.json").read_text())


def _interleave(q, k, v, groups):
    rows = lambda t: t.reshape(groups, t.shape[0] // groups, *t.shape[1:])
    return torch.cat([rows(q), rows(k), rows(v)], dim=1).reshape(-1, *q.shape[1:])


def _unfused_experts(tensors):
    """One tensor per expert, whatever the repository has."""
    out = {}
    for key, value in tensors.items():
        # Mixtral's published names; w1 is the gate, w3 the up projection.
        if m := re.fullmatch(r"(.*)\.block_sparse_moe\.experts\.(\d+)\.w([123])\.weight", key):
            out[f"{m[1]}.mlp.experts.{m[2]}.{dict(zip('123', ('gate', 'down', 'up')))[m[3]]}_proj.weight"] = value
        elif m := re.fullmatch(r"(.*)\.block_sparse_moe\.gate\.weight", key):
            out[f"{m[1]}.mlp.gate.weight"] = value
        elif m := re.fullmatch(r"(.*\.mlp\.experts)\.gate_up_proj", key):
            for e, both in enumerate(value):
                gate, up = both.chunk(2)
                out[f"{m[1]}.{e}.gate_proj.weight"], out[f"{m[1]}.{e}.up_proj.weight"] = gate, up
        elif m := re.fullmatch(r"(.*\.mlp\.experts)\.down_proj", key):
            out |= {f"{m[1]}.{e}.down_proj.weight": one for e, one in enumerate(value)}
        else:
            out[key] = value
    return out


def _gpt_oss_experts(at, rest, value):
    """What gpt-oss stores of all experts of a layer, one by one."""
    part, kind = re.fullmatch(r"mlp\.experts\.(gate_up|down)_proj(_bias|)", rest).groups()
    for e, one in enumerate(value):
        rows = one if kind else one.T
        rows = torch.cat([rows[::2], rows[1::2]]) if part == "gate_up" else rows
        yield f"{at}mlp.experts.linear_fc{1 if part == 'gate_up' else 2}.{'bias' if kind else 'weight'}{e}", rows


def megatron_tensors(tensors, config):
    """Key on disk -> tensor, for a dense or mixture-of-experts model with grouped-query or latent attention."""
    is_gpt_oss = config["model_type"] == "gpt_oss"
    tensors = tensors if is_gpt_oss else _unfused_experts(tensors)
    groups = config.get("num_key_value_heads") or config["num_attention_heads"]
    moe_layers = {int(m[1]) for k in tensors if (m := re.match(r"model\.layers\.(\d+)\.mlp\.(gate|router)\.", k))}
    is_mla = config.get("kv_lora_rank") is not None
    latent = {"q_proj": "linear_q_proj.weight", "q_a_proj": "linear_q_down_proj.weight", "q_b_proj": "linear_q_up_proj.weight",
              "q_a_layernorm": "linear_q_up_proj.layer_norm_weight", "kv_a_proj_with_mqa": "linear_kv_down_proj.weight",
              "kv_a_layernorm": "linear_kv_up_proj.layer_norm_weight", "kv_b_proj": "linear_kv_up_proj.weight"}
    out = {}

    def put(name, value):
        out["model.module." + name] = value

    ends = {"model.embed_tokens.weight": "embedding.word_embeddings.weight", "model.norm.weight": "decoder.final_layernorm.weight",
            "lm_head.weight": "output_layer.weight"}
    shared = {"embed_tokens.weight": "model.embed_tokens.weight", "shared_head.head.weight": "lm_head.weight"}
    around = {"enorm.weight": "enorm.weight", "hnorm.weight": "hnorm.weight", "eh_proj.weight": "eh_proj.weight",
              "shared_head.norm.weight": "final_layernorm.weight"}
    for key, value in tensors.items():
        if key == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if key in ends:
            put(ends[key], value)
            continue
        layer, rest = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", key).groups()
        at = f"decoder.layers.{layer}."
        if (further := int(layer) - config["num_hidden_layers"]) >= 0:  # it predicts a further token
            if rest in shared:
                assert torch.equal(value, tensors[shared[rest]])
                continue
            if rest in around:
                put(f"mtp.layers.{further}.{around[rest]}", value)
                continue
            at = f"mtp.layers.{further}.transformer_layer."
        if rest == "input_layernorm.weight":
            put(at + ("input_layernorm.weight" if is_mla else "self_attention.linear_qkv.layer_norm_weight"), value)
        elif rest == "post_attention_layernorm.weight" and f"model.layers.{layer}.post_feedforward_layernorm.weight" in tensors:
            put(at + "self_attention.linear_proj.post_layernorm.weight", value)
        elif rest == "post_feedforward_layernorm.weight":
            put(at + "mlp.linear_fc2.post_layernorm.weight", value)
        elif rest == "post_attention_layernorm.weight":
            put(at + ("pre_mlp_layernorm.weight" if int(layer) in moe_layers else "mlp.linear_fc1.layer_norm_weight"), value)
        elif is_mla and (m := re.fullmatch(r"self_attn\.(\w+)\.weight", rest)) and m[1] in latent:
            put(at + "self_attention." + latent[m[1]], value)
        elif m := re.fullmatch(r"self_attn\.q_proj\.(weight|bias)", rest):
            k, v = (tensors[f"model.layers.{layer}.self_attn.{p}_proj.{m[1]}"] for p in "kv")
            put(at + f"self_attention.linear_qkv.{m[1]}", _interleave(value, k, v, groups))
        elif re.fullmatch(r"self_attn\.[kv]_proj\.(weight|bias)", rest):
            pass  # with q_proj
        elif m := re.fullmatch(r"self_attn\.o_proj\.(weight|bias)", rest):
            put(at + f"self_attention.linear_proj.{m[1]}", value)
        elif m := re.fullmatch(r"self_attn\.([qk])_norm\.weight", rest):
            put(at + f"self_attention.{m[1]}_layernorm.weight", value)
        elif is_gpt_oss and rest == "self_attn.sinks":
            put(at + "self_attention.core_attention.softmax_offset", value)
        elif is_gpt_oss and rest in ("mlp.router.weight", "mlp.router.bias"):
            put(at + rest, value)
        elif is_gpt_oss and rest.startswith("mlp.experts."):
            for name, one in _gpt_oss_experts(at, rest, value):
                put(name, one)
        elif rest == "mlp.gate.weight":
            put(at + "mlp.router.weight", value)
        elif rest == "mlp.gate.e_score_correction_bias":
            put(at + "mlp.router.expert_bias", value)
        elif m := re.fullmatch(r"mlp\.(gate|up|down)_proj\.(weight|bias)", rest):
            put(at + {"gate": f"mlp.linear_fc1.{m[2]}_w", "up": f"mlp.linear_fc1.{m[2]}_v", "down": f"mlp.linear_fc2.{m[2]}"}[m[1]], value)
        elif m := re.fullmatch(r"mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight", rest):
            put(at + {"gate": f"mlp.experts.linear_fc1.weight{m[1]}_w", "up": f"mlp.experts.linear_fc1.weight{m[1]}_v",
                      "down": f"mlp.experts.linear_fc2.weight{m[1]}"}[m[2]], value)
        elif rest == "mlp.shared_expert_gate.weight":
            put(at + "mlp.shared_experts.gate_weight", value)
        elif m := re.fullmatch(r"mlp\.shared_experts?\.(gate|up|down)_proj\.weight", rest):
            put(at + "mlp.shared_experts." + {"gate": "linear_fc1.weight_w", "up": "linear_fc1.weight_v", "down": "linear_fc2.weight"}[m[1]], value)
        else:
            raise ValueError(f"no Megatron name for {key}")
    return out


def described(tensors):
    return {k: hashing.describe(t) for k, t in sorted(tensors.items())}
