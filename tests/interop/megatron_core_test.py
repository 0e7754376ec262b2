"""Real Megatron-Core loads our torch_dist checkpoints into a real GPTModel, every key and value, and saves the same itself."""
import itertools
import json
import re

import pytest
import safetensors.torch
import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

import further_layers
import golden
import mapping
import tools

# Both read what old loaders read; 0.19 is the first that looks for the common state among the objects.
VERSIONS = {"compat": "0.16.1", "0.19": "0.19.2"}  # which version writes each generation itself
# It has no layers with norms behind attention and MLP.
MODELS = [c for c in golden.models() if golden.config(c)["model_type"] != "olmo2"]
# What the generations store differently says nothing of the model: a few that differ in their keys.
OTHERWISE = ("qwen3-tied-bf16", "qwen3moe-norm-bf16", "qwen3moe-step-bf16", "deepseekv2-group-bf16", "deepseekv3-mtp-bf16")
# Grouped experts of layers without Transformer Engine are a class that 0.19 does not have.
GROUPED = [c for c in MODELS if c.name.startswith("qwen3moe-norm")]


def live_tensors(case, version, grouped=False):
    """What a GPTModel of local layers holds of the published model, by a mapping of our own."""
    found = mapping.megatron_tensors(*mapping.read_repository(case / "ckpt"))
    out, experts = {}, {}
    for key, value in found.items():
        name = key.removeprefix("model.module.")
        name = name.replace("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight")
        name = name.replace("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight")
        name = name.replace("linear_q_up_proj.layer_norm_weight", "q_layernorm.weight")
        name = name.replace("linear_kv_up_proj.layer_norm_weight", "kv_layernorm.weight")
        if version == "0.19.2":  # the live module alone: what it stores is called as before
            name = name.replace(".transformer_layer.", ".mtp_model_layer.")
        if name.endswith("_v"):
            continue
        if name.endswith("_w"):
            name, value = name[:-2], torch.cat([value, found[key[:-2] + "_v"]])
        if m := re.fullmatch(r"(.*\.mlp\.experts)\.linear_fc([12])\.(weight|bias)(\d+)", name):
            if grouped:
                experts.setdefault((m[1], m[2]), {})[int(m[4])] = value
                continue
            name = f"{m[1]}.local_experts.{m[4]}.linear_fc{m[2]}.{m[3]}"
        out[name] = value
    for (prefix, part), one in experts.items():
        stacked = torch.stack([one[e].T for e in sorted(one)])  # [expert, columns, rows]
        hidden = stacked.shape[1] if part == "1" else stacked.shape[2]
        out[f"{prefix}.weight{part}"] = stacked.reshape((hidden, -1) if part == "1" else (-1, hidden))
    return out


def entries_of(folder):
    """Key -> what the checkpoint's metadata says of it: of the tensors, and of other objects."""
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {k: m for k, m in entries.items() if isinstance(m, TensorStorageMetadata)}
    return tensors, {k: m for k, m in entries.items() if k not in tensors}


def stored(folder):
    """Tensors with shape and dtype, and the keys of the other objects but the common state."""
    tensors, objects = entries_of(folder)
    shapes = {k: (tuple(m.size), m.properties.dtype) for k, m in tensors.items()}
    return shapes, {k for k in objects if not k.startswith("common_state/")}


def chunks(folder):
    """Tensor -> the offsets and sizes of its chunks."""
    tensors, _ = entries_of(folder)
    return {k: {(tuple(c.offsets), tuple(c.sizes)) for c in m.chunks} for k, m in tensors.items()}


def grid_of_megatron(key, shape, grouped):
    """How one rank of Megatron-Core cuts a tensor: layers, experts that are not one parameter, and a gated fc1 into gate and up."""
    layers = "decoder.layers." in key and not re.search(r"\.layers\.\d+\.", key)
    experts = ".experts.experts." in key
    sizes = list(shape)
    sizes[:layers] = [1] * layers
    if experts and not grouped:
        sizes[layers] = 1
    if re.search(r"linear_fc1\.(weight|bias)$", key):
        sizes[layers + experts] //= 2
    steps = [range(0, n, size) for n, size in zip(shape, sizes)]
    return {(offsets, tuple(sizes)) for offsets in itertools.product(*steps)}


def check(case, generation, version, tmp_path, *options, grouped=False):
    ours, live, own = tmp_path / "ours", tmp_path / "live.pt", tmp_path / "own"
    tools.convert("hf-to-torch-dist", case / "ckpt", ours, "--transformer-impl", "local", "--torch-dist-generation", generation, *options)
    done = tools.megatron(version, "megatron_core.py", ours / "release", live, own, "--grouped" if grouped else "--sequential")
    assert done["iteration"] == 0
    want, got = live_tensors(case, version, grouped), torch.load(live)
    assert set(want) <= set(got)
    assert all(re.search(r"local_tokens_per_expert|output_layer", k) for k in set(got) - set(want)), set(got) - set(want)
    for key, value in want.items():
        assert got[key].dtype == value.dtype, key
        padded = torch.zeros_like(got[key])
        padded[:value.shape[0]] = value
        assert torch.equal(got[key], padded), key
    assert stored(ours / "release") == stored(own)
    our_chunks, own_chunks = chunks(ours / "release"), chunks(own)
    for key, (shape, _) in stored(own)[0].items():
        assert own_chunks[key] == grid_of_megatron(key, shape, grouped), key
    if not grouped:  # of GroupedMLP, which later versions do not have: all experts are one chunk
        assert our_chunks == own_chunks
    if VERSIONS[generation] == version:
        assert (own / "metadata.json").read_text() == (ours / "release" / "metadata.json").read_text()


def takes(case, version):
    """0.19 refuses local layers of latent attention whose queries have no latents: "`q_lora_rank is None`"."""
    config = golden.config(case)
    return version == "0.16.1" or "kv_lora_rank" not in config or config["q_lora_rank"] is not None


@pytest.mark.parametrize("case,generation", [(c, g) for c in MODELS for g, v in VERSIONS.items() if takes(c, v)],
                         ids=lambda value: getattr(value, "name", value))
def test_loads_with_every_key_and_value(case, generation, tmp_path):
    check(case, generation, VERSIONS[generation], tmp_path)


@pytest.mark.parametrize("case", [c for c in MODELS if c.name in OTHERWISE], ids=golden.name)
def test_loads_the_default_into_the_newer_version(case, tmp_path):
    check(case, "compat", "0.19.2", tmp_path)


@pytest.mark.parametrize("case", GROUPED, ids=golden.name)
def test_loads_into_grouped_experts(case, tmp_path):
    check(case, "compat", "0.16.1", tmp_path, grouped=True)


@pytest.mark.parametrize("case", GROUPED, ids=golden.name)
def test_loads_layers_that_are_kept_apart(case, tmp_path):
    check(case, "compat", "0.16.1", tmp_path, "--layer-keys", "per_layer")


@pytest.mark.parametrize("generation", VERSIONS)
@pytest.mark.parametrize("changes", ({}, {"num_hidden_layers": 1, "first_k_dense_replace": 9}), ids=("moe", "dense"))
def test_loads_several_layers_that_predict_further_tokens(changes, generation, tmp_path):
    """With grouped queries, behind a mixture of experts or a dense layer."""
    tensors, config = mapping.read_repository(next(c for c in MODELS if c.name == "glm4moe-bf16") / "ckpt")
    config |= changes
    dropped = tuple(f"model.layers.{n}." for n in range(config["num_hidden_layers"], 99))
    tensors = {key: value for key, value in tensors.items() if not key.startswith(dropped)}
    further_layers.add(tensors, config, 2)
    (tmp_path / "ckpt").mkdir()
    safetensors.torch.save_file(tensors, tmp_path / "ckpt/model.safetensors", metadata={"format": "pt"})
    (tmp_path / "ckpt/config.json").write_text(json.dumps(config))
    check(tmp_path, generation, VERSIONS[generation], tmp_path, "--layer-keys", "per_layer")
