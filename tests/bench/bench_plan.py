#!/usr/bin/env python3
"""Metadata of DeepSeek-V3's size: what inspecting it and planning a load for 16,384 ranks take.

    bench_plan.py --bin build/release/bin [--layers 61] [--ranks 16384] [--ep 64] [--runs 3] [--work DIR]

Two checkpoints without content (sparse files): the published repository, 45,395 tensors in 169 safetensors files; and, where this
Python has torch, the same tensors as `--ranks` ranks of a run divide them (row-aligned shards of each layer, experts over `--ep`),
as a .metadata that torch pickles, under the same names. Whole processes, warm. The target is 10 s and 1 GiB for each. Prints
one JSON document.
"""
import argparse
import json
import math
import pathlib
import pickle
import struct
import sys
import tempfile

import measure

HIDDEN, VOCABULARY, EXPERTS, EXPERT_WIDTH, WIDTH, HEADS = 7168, 129280, 256, 2048, 18432, 128
DENSE_LAYERS = 3


def config(layers):
    return {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": HIDDEN, "num_hidden_layers": layers,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": VOCABULARY, "intermediate_size": WIDTH,
        "moe_intermediate_size": EXPERT_WIDTH, "n_routed_experts": EXPERTS, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
        "topk_group": 4, "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "routed_scaling_factor": 2.5,
        "first_k_dense_replace": DENSE_LAYERS, "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "max_position_embeddings": 4096, "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "initializer_range": 0.02, "num_nextn_predict_layers": 0,
    }


def mlp(at, width):
    return [(f"{at}gate_proj.weight", (width, HIDDEN)), (f"{at}up_proj.weight", (width, HIDDEN)), (f"{at}down_proj.weight", (HIDDEN, width))]


def units(layers):
    """[(dense tensors, [tensors of each expert])] of the embedding, of each layer and of the head."""
    yield [("model.embed_tokens.weight", (VOCABULARY, HIDDEN))], []
    for i in range(layers):
        at = f"model.layers.{i}."
        dense = [(at + "self_attn.q_a_proj.weight", (1536, HIDDEN)), (at + "self_attn.q_a_layernorm.weight", (1536,)),
                 (at + "self_attn.q_b_proj.weight", (HEADS * 192, 1536)), (at + "self_attn.kv_a_proj_with_mqa.weight", (576, HIDDEN)),
                 (at + "self_attn.kv_a_layernorm.weight", (512,)), (at + "self_attn.kv_b_proj.weight", (HEADS * 256, 512)),
                 (at + "self_attn.o_proj.weight", (HIDDEN, HEADS * 128)), (at + "input_layernorm.weight", (HIDDEN,)),
                 (at + "post_attention_layernorm.weight", (HIDDEN,))]
        if i < DENSE_LAYERS:
            yield dense + mlp(at + "mlp.", WIDTH), []
            continue
        dense += [(at + "mlp.gate.weight", (EXPERTS, HIDDEN)), (at + "mlp.gate.e_score_correction_bias", (EXPERTS,))]
        yield dense + mlp(at + "mlp.shared_experts.", EXPERT_WIDTH), [mlp(f"{at}mlp.experts.{e}.", EXPERT_WIDTH) for e in range(EXPERTS)]
    yield [("model.norm.weight", (HIDDEN,)), ("lm_head.weight", (VOCABULARY, HIDDEN))], []


def write_repository(folder, layers):
    folder.mkdir()
    shards, used = [[]], 0
    for dense, experts in units(layers):
        for name, shape in dense + [tensor for expert in experts for tensor in expert]:
            size = 2 * math.prod(shape)
            if shards[-1] and used + size > 8e9:
                shards.append([])
                used = 0
            shards[-1].append((name, shape, size))
            used += size
    weight_map = {}
    for i, shard in enumerate(shards, 1):
        file, header, at = f"model-{i:05d}-of-{len(shards):06d}.safetensors", {}, 0
        for name, shape, size in shard:
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
            weight_map[name] = file
            at += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + at)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(config(layers)))
    return len(weight_map)


def cut(tensors, ranks):
    """[(name, shape, rank, first row, rows)]: consecutive rows, about equally many elements for each of `ranks`."""
    each = math.ceil(sum(math.prod(shape) for _, shape in tensors) / len(ranks))
    held, place = 0, 0
    for name, shape in tensors:
        row_elems, row = math.prod(shape[1:]), 0
        while row < shape[0]:
            rows = min(shape[0] - row, max(1, math.ceil((each - held) / row_elems)))
            yield name, shape, ranks[place], row, rows
            row += rows
            held += rows * row_elems
            if held >= each and place + 1 < len(ranks):
                held, place = 0, place + 1


def write_run(folder, layers, ranks, expert_parallel):
    import torch
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex,
                                                       TensorProperties, TensorStorageMetadata)
    folder.mkdir()
    state, storage, used, shapes = {}, {}, [0] * ranks, {}
    properties = TensorProperties(dtype=torch.bfloat16)
    for dense, experts in units(layers):
        pieces = list(cut(dense, range(ranks)))
        for e in range(expert_parallel if experts else 0):
            count = len(experts) // expert_parallel
            mine = [tensor for expert in experts[e * count:(e + 1) * count] for tensor in expert]
            pieces += cut(mine, range(e, ranks, expert_parallel))
        for name, shape, rank, row, rows in pieces:
            offsets = torch.Size([row, *[0] * (len(shape) - 1)])
            sizes = torch.Size([rows, *shape[1:]])
            entry = state.setdefault(name, TensorStorageMetadata(properties, torch.Size(shape), []))
            item = 1024 + 2 * math.prod(sizes)
            storage[MetadataIndex(name, offsets, len(entry.chunks))] = _StorageInfo(f"__{rank}_0.distcp", used[rank], item)
            entry.chunks.append(ChunkStorageMetadata(offsets=offsets, sizes=sizes))
            used[rank] += item
    with open(folder / ".metadata", "wb") as file:
        pickle.dump(Metadata(state_dict_metadata=state, planner_data={k: (k,) for k in state}, storage_data=storage), file)
    for rank, size in enumerate(used):
        if size:
            with open(folder / f"__{rank}_0.distcp", "wb") as file:
                file.truncate(size)
    (folder / "config.json").write_text(json.dumps(config(layers)))
    return len(storage)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=61)
    parser.add_argument("--ranks", type=int, default=16384)
    parser.add_argument("--ep", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()
    tool, mesh = args.bin / "ckpt-inspect", f"dp={args.ranks},ep={args.ep}"
    with tempfile.TemporaryDirectory(dir=args.work, prefix="ckptkit-bench-") as scratch:
        scratch = pathlib.Path(scratch)
        result = {"runs": args.runs, "mesh": mesh, "tensors": write_repository(scratch / "hf", args.layers), "checkpoints": {}}
        chunks = {"hf": result["tensors"]}
        try:
            chunks["dcp"] = write_run(scratch / "dcp", args.layers, args.ranks, args.ep)
        except ImportError:
            print("no torch here: the run's metadata are not measured", file=sys.stderr)
        for name, count in chunks.items():
            verbs = {"summary": ["summary"], "tensors": ["tensors", "--json"], "plan": ["plan", "--mesh", mesh, "--json"],
                     "html": ["html", "--overwrite", "-o", scratch / "page.html"]}
            one = {"chunks": count, "seconds": {}, "cpu_seconds": {}, "peak_rss_bytes": {}}
            for verb, words in verbs.items():
                runs = []
                for _ in range(args.runs):
                    with open(scratch / "out", "wb") as out:
                        runs.append(measure.run([tool, words[0], scratch / name, *words[1:]], stdout=out))
                    print(f"{name} {verb}: {runs[-1].seconds:.2f} s, {runs[-1].peak_rss_bytes >> 20} MiB", file=sys.stderr)
                if verb == "plan":
                    plan = json.loads((scratch / "out").read_text())
                    if len(plan["ranks"]) != args.ranks:
                        raise RuntimeError("plan does not list every rank")
                    one["amplification"] = plan["amplification"]
                one["seconds"][verb] = [run.seconds for run in runs]
                one["cpu_seconds"][verb] = measure.median([run.cpu_seconds for run in runs])
                one["peak_rss_bytes"][verb] = max(run.peak_rss_bytes for run in runs)
            result["checkpoints"][name] = one
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
