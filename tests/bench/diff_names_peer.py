#!/usr/bin/env python3
"""What torch takes to compare two checkpoints of one model under two namings: prints the seconds, without imports, and how many tensors differ.

    diff_names_peer.py A B

A is a Hugging Face repository, or DCP under the names of Transformers (`ckpt-convert convert --to fsdp2`); B is torch_dist or fsdp_dtensor; both of
the models of make_model.py. A repository is mapped, DCP is read by `dcp.load`. Every tensor of B is put together of A's parts and compared by torch.equal.
"""
import json
import pathlib
import sys
import time

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file


def read(folder):
    if not list(folder.rglob(".metadata")):
        return {key: tensor for path in sorted(folder.glob("*.safetensors")) for key, tensor in load_file(path).items()}
    reader = dcp.FileSystemReader(next(folder.rglob(".metadata")).parent)
    entries = reader.read_metadata().state_dict_metadata.items()
    state = {key: torch.empty(entry.size, dtype=entry.properties.dtype) for key, entry in entries if hasattr(entry, "size")}
    dcp.load(state, storage_reader=reader)
    return state


class Layer:
    """The weights of one layer of A, in the shapes of Megatron."""

    def __init__(self, a, number, heads):
        self.a, self.at, self.heads = a, f"model.layers.{number}.", heads

    def __getitem__(self, name):
        return self.a[self.at + name]

    def qkv(self, kind):
        groups, parts = self.heads, [self[f"self_attn.{part}_proj.{kind}"] for part in "qkv"]
        return torch.cat([part.view(groups, -1, *part.shape[1:]) for part in parts], 1).reshape(-1, *parts[0].shape[1:])

    def experts(self):
        """(gate, up, down) of each."""
        at = self.at + "mlp.experts."
        if at + "0.gate_proj.weight" in self.a:
            number = 0
            while f"{at}{number}.gate_proj.weight" in self.a:
                yield tuple(self.a[f"{at}{number}.{part}_proj.weight"] for part in ("gate", "up", "down"))
                number += 1
            return
        for both, down in zip(self.a[at + "gate_up_proj"], self.a[at + "down_proj"]):
            if at + "gate_up_proj_bias" in self.a:  # gpt-oss: transposed, gate and up by turns
                yield both[:, ::2].T, both[:, 1::2].T, down.T
            else:
                yield *both.chunk(2), down


def pairs_of_layer(layer, is_oss):
    """Names within a layer of Megatron, and A's tensors."""
    yield "self_attention.linear_qkv.weight", layer.qkv("weight")
    yield "self_attention.linear_proj.weight", layer["self_attn.o_proj.weight"]
    yield "self_attention.linear_qkv.layer_norm_weight", layer["input_layernorm.weight"]
    yield "pre_mlp_layernorm.weight", layer["post_attention_layernorm.weight"]
    yield "mlp.router.weight", layer["mlp.router.weight" if is_oss else "mlp.gate.weight"]
    if not is_oss:
        yield "self_attention.q_layernorm.weight", layer["self_attn.q_norm.weight"]
        yield "self_attention.k_layernorm.weight", layer["self_attn.k_norm.weight"]
        return
    yield "self_attention.linear_qkv.bias", layer.qkv("bias")
    yield "self_attention.linear_proj.bias", layer["self_attn.o_proj.bias"]
    yield "self_attention.core_attention.softmax_offset", layer["self_attn.sinks"]
    yield "mlp.router.bias", layer["mlp.router.bias"]


def pairs(a, b, groups):
    """Tensors of B, whole or in parts, and A's."""
    is_oss = "model.layers.0.mlp.router.weight" in a
    is_stacked = "decoder.final_layernorm.weight" in b
    prefix = "" if is_stacked else "model.module."
    for name, key in (("embedding.word_embeddings", "model.embed_tokens"), ("decoder.final_layernorm", "model.norm"), ("output_layer", "lm_head")):
        yield b[f"{prefix}{name}.weight"], a[key + ".weight"]
    layers = 1 + max(int(key.split(".")[2]) for key in a if key.startswith("model.layers."))
    for number in range(layers):
        layer = Layer(a, number, groups)
        for name, tensor in pairs_of_layer(layer, is_oss):
            yield (b[f"decoder.layers.{name}"][number] if is_stacked else b[f"{prefix}decoder.layers.{number}.{name}"]), tensor
        for expert, (gate, up, down) in enumerate(layer.experts()):
            if is_stacked:
                at = "decoder.layers.mlp.experts.experts.linear_fc"
                yield b[at + "1.weight"][number, expert], torch.cat((gate, up))
                yield b[at + "2.weight"][number, expert], down
            else:
                at = f"{prefix}decoder.layers.{number}.mlp.experts.linear_fc"
                yield b[f"{at}1.weight{expert}_w"], gate
                yield b[f"{at}1.weight{expert}_v"], up
                yield b[f"{at}2.weight{expert}"], down
        if is_oss:
            both, down = layer["mlp.experts.gate_up_proj_bias"], layer["mlp.experts.down_proj_bias"]
            yield b["decoder.layers.mlp.experts.experts.linear_fc1.bias"][number], torch.cat((both[:, ::2], both[:, 1::2]), 1)
            yield b["decoder.layers.mlp.experts.experts.linear_fc2.bias"][number], down


def main():
    folders = [pathlib.Path(word) for word in sys.argv[1:3]]
    started = time.perf_counter()
    a, b = map(read, folders)
    a = {key.removeprefix("model.") if key.startswith(("model.model.", "model.lm_head.")) else key: tensor for key, tensor in a.items()}
    groups = json.loads(next(folders[0].rglob("config.json")).read_text())["num_key_value_heads"]
    different = compared = 0
    for x, y in pairs(a, b, groups):
        different += not torch.equal(x, y)
        compared += x.numel()
    seconds = time.perf_counter() - started
    if compared != sum(tensor.numel() for tensor in a.values()):
        raise RuntimeError("not every tensor was compared")
    print(seconds, different)


if __name__ == "__main__":
    main()
