"""Real Megatron-Core goes on from training runs of ours: its distributed optimizer takes every key and value, and saves the same."""
import json

import pytest
import torch

import golden
import tools
from megatron_core_test import VERSIONS, chunks, stored
from megatron_keys_test import load_tensors

# Of layers without Transformer Engine, as the model is that loads them.
RUNS = [c for c in golden.cases("fsdp_dtensor") if c.name.startswith(("dense_", "moe_"))]


def check(run, generation, tmp_path):
    """It loads the run, stored by us as this generation, and saves the same."""
    ours, own = tmp_path / "ours", tmp_path / "own"
    tools.convert("fsdp-to-torch-dist", run, ours, "--transformer-impl", "local", "--dtype", "bfloat16",
                  "--torch-dist-generation", generation)
    (folder,) = ours.glob("iter_*")
    done = tools.megatron(VERSIONS[generation], "megatron_core.py", folder, tmp_path / "live.pt", own, "--sequential")
    assert done["iteration"] == int((ours / "latest_checkpointed_iteration.txt").read_text())
    assert stored(folder) == stored(own)
    assert chunks(folder) == chunks(own)
    want, got = load_tensors(folder), load_tensors(own)
    assert any(key.startswith("optimizer.state.exp_avg_sq.") for key in want)
    for key, value in want.items():
        if key.startswith("optimizer.state."):
            assert value.dtype == torch.float32
            assert torch.equal(got[key], value), key
        else:  # the weights that compute are rounded from the optimizer's
            main = want.get(f"optimizer.state.param.{key}", value)
            assert torch.equal(got[key], main.to(value.dtype)), key


def train(tmp_path, **more):
    """A small run of ours, saved in tmp_path / "run"."""
    tokens = tmp_path / "tokens.jsonl"
    tokens.write_text(json.dumps({"input_ids": [i % 60 for i in range(200)]}) + "\n")
    settings = {"num_layers": 2, "hidden_size": 32, "ffn_hidden_size": 48, "num_attention_heads": 4, "vocab_size": 64, "bf16": True, "lr": 1e-3,
                "seq_length": 16, "global_batch_size": 2, "micro_batch_size": 1, "train_iters": 3, "data_path": tokens,
                "transformer_impl": "local"} | more
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value) if isinstance(value, bool) else value}")]
    code, _, stderr = tools.run("ckpt-train", "--ranks", 2, "--save", tmp_path / "run", *words)
    assert code == 0, stderr
    return tmp_path / "run"


@pytest.mark.parametrize("generation", VERSIONS)
def test_takes_a_run_with_layer_norms(generation, tmp_path):
    run = train(tmp_path, normalization="LayerNorm", swiglu=False, add_bias_linear=True, untie_embeddings_and_output_weights=False)
    check(run, generation, tmp_path)


@pytest.mark.parametrize("norms_decay", (True, False))
@pytest.mark.parametrize("generation", VERSIONS)
def test_the_same_parameters_decay(generation, norms_decay, tmp_path):
    """torch_dist does not store the members of groups: Megatron makes them by the arguments, and so do we."""
    ours = train(tmp_path, qk_layernorm=True, save_format="torch_dist", **({"apply_wd_to_qk_layernorm": True} if norms_decay else {}))
    (folder,) = ours.glob("iter_*")
    done = tools.megatron(VERSIONS[generation], "megatron_core.py", folder, tmp_path / "live.pt", tmp_path / "own", "--sequential")
    norms = [name for name in done["decayed"] if "q_layernorm." in name or "k_layernorm." in name]
    assert len(norms) == (4 if norms_decay else 0) and "decoder.layers.0.mlp.linear_fc1.weight" in done["decayed"]
    # What Megatron saved, under names that say the members.
    tools.convert("torch-dist-to-fsdp", tmp_path / "own", tmp_path / "named")
    before, after = "optimizer.param_to_group_meta.module.module.module.", ".wd_mult"
    factors = {key.removeprefix(before).removesuffix(after): value for key, value in tools.inspect("meta", tmp_path / "named")["objects"].items()
               if key.startswith(before) and key.endswith(after)}
    assert {name for name, factor in factors.items() if factor != 0} == set(done["decayed"])


@pytest.mark.parametrize("case", RUNS, ids=golden.name)
def test_takes_weights_optimizer_and_schedule(case, tmp_path):
    check(case / "ckpt", "compat", tmp_path)


BUFFERS = ("--optimizer-form", "dp_reshardable")


def argument(path, name):
    return tools.inspect("show", path, "common_state")["value"]["args"]["$object"]["state"][name]


def groups(path):
    """Of a run with one optimizer: what this version's classes keep of its parameter groups, in any order."""
    said = ("wd_mult", "lr_mult", "max_lr", "min_lr", "lr", "betas", "eps", "step", "weight_decay")
    listed = tools.inspect("show", path, "common_state")["value"]["optimizer"]["optimizer"]["param_groups"]
    return sorted(json.dumps([group[name] for name in said]) for group in listed)


# The peer has one tensor rank, and no class of grouped experts that has a parameter for each.
@pytest.mark.parametrize("case", [c for c in RUNS if "_tp2_" not in c.name and not c.name.startswith("moe_ep2")], ids=golden.name)
@pytest.mark.parametrize("version", VERSIONS.values())
def test_takes_the_buffers_of_its_distributed_optimizer(version, case, tmp_path):
    """They follow from the run's arguments, and are those that it makes itself: it saves the same keys and objects, and every value outside gaps."""
    ours, own = tmp_path / "ours", tmp_path / "own"
    options = ("--transformer-impl", "local", "--dtype", "bfloat16")
    tools.convert("fsdp-to-torch-dist", case / "ckpt", tmp_path / "usual", *options)
    tools.convert("fsdp-to-torch-dist", case / "ckpt", ours, *options, *BUFFERS)
    (folder,) = ours.glob("iter_*")
    ranks = argument(ours, "expert_model_parallel_size")
    done = tools.megatron(version, "megatron_core.py", folder, tmp_path / "live.pt", own, "--sequential", "--expert-ranks", ranks)
    assert done["optimizers"] == ranks and done["iteration"] == int((ours / "latest_checkpointed_iteration.txt").read_text())
    assert stored(folder) == stored(own)
    for name, saved in (("ours", folder), ("own", own)):
        tools.convert("convert", saved, tmp_path / f"back-{name}", "--to", "torch_dist", "--transformer-impl", "local")
        assert tools.digests(tmp_path / f"back-{name}") == tools.digests(tmp_path / "usual")
    assert groups(tmp_path / "back-ours") == groups(tmp_path / "back-own")


FORM = ("--optimizer-form", "fully_sharded_model_space")


def boxes(path):
    """Tensor of the optimizer -> the boxes in which it is stored."""
    found = {}
    for chunk in tools.inspect("shards", path, "--match", "optimizer.state.*")["chunks"]:
        found.setdefault(chunk["key"], set()).add((tuple(chunk["offsets"]), tuple(chunk["sizes"])))
    return found


def with_experts_apart(case, tmp_path):
    """The golden, of a run in which each expert has parameters of its own."""
    if not case.name.startswith("moe_ep2"):
        return case / "ckpt"
    tools.convert("convert", case / "ckpt", tmp_path / "apart", "--to", "fsdp_dtensor", "--expert-names", "sequential")
    return tmp_path / "apart"


@pytest.mark.parametrize("case", RUNS, ids=golden.name)
def test_an_older_version_takes_the_form_that_it_had(case, tmp_path):
    """Its distributed optimizer loads every tensor, flattened, and saves the same in the same blocks."""
    ours, own = tmp_path / "ours", tmp_path / "own"
    tools.convert("fsdp-to-torch-dist", with_experts_apart(case, tmp_path), ours, "--transformer-impl", "local", "--dtype", "bfloat16", *FORM)
    (folder,) = ours.glob("iter_*")
    done = tools.megatron("0.15.3", "megatron_core.py", folder, tmp_path / "live.pt", own, "--sequential")
    assert done["iteration"] == int((ours / "latest_checkpointed_iteration.txt").read_text())
    want, got = tools.described(ours), tools.described(own)
    assert {key for key in want if key.startswith("optimizer.state.fp32_param.")}
    assert got == want
    assert boxes(own) == boxes(ours)
    # And both come back, bit for bit.
    for saved in (ours, own):
        tools.convert("torch-dist-to-fsdp", saved, tmp_path / f"back-{saved.name}", "--transformer-impl", "local")
    assert tools.digests(tmp_path / "back-own") == tools.digests(tmp_path / "back-ours")


@pytest.mark.parametrize(("version", "form"), (("0.15.3", "fully_reshardable"), ("0.15.3", "fully_sharded_model_space"), ("0.16.1", "dp_reshardable")))
@pytest.mark.parametrize("case", [c for c in RUNS if c.name.startswith("moe_ep2")], ids=golden.name)
def test_experts_in_one_array_come_back(case, version, form, tmp_path):
    """In model space and in buffers states have the array's own order, the transposed one of the weights that are stored."""
    ours, own = tmp_path / "ours", tmp_path / "own"
    options = ("--transformer-impl", "local", "--dtype", "bfloat16")
    tools.convert("fsdp-to-torch-dist", case / "ckpt", ours, *options)
    (folder,) = ours.glob("iter_*")
    tools.megatron(version, "megatron_core.py", folder, tmp_path / "live.pt", own, "--grouped", "--optimizer-form", form)
    for saved in (ours, own):
        tools.convert("torch-dist-to-fsdp", saved, tmp_path / f"back-{saved.name}", "--transformer-impl", "local")
    assert tools.digests(tmp_path / "back-own") == tools.digests(tmp_path / "back-ours")
    # Written in that form, its weights would not be where such a run looks for them.
    code, document, _ = tools.run("ckpt-convert", "fsdp-to-torch-dist", case / "ckpt", tmp_path / "no", *options, *FORM, "--json")
    assert code != 0 and "moe_grouped_gemm" in document["errors"][0]["actual"]


@pytest.mark.parametrize("generation", VERSIONS)
@pytest.mark.parametrize("case", [c for c in RUNS if c.name in ("dense_tied_fsdp4", "moe_ep2_fsdp4")], ids=golden.name)
def test_singleton_shards_come_back(case, generation, tmp_path):
    """Each layer, each expert and each half of a gated projection is a tensor of its own."""
    ours, own = tmp_path / "ours", tmp_path / "own"
    tools.convert("fsdp-to-torch-dist", case / "ckpt", ours, "--transformer-impl", "local", "--dtype", "bfloat16", "--torch-dist-generation", generation)
    (folder,) = ours.glob("iter_*")
    tools.megatron(VERSIONS[generation], "megatron_core.py", folder, tmp_path / "live.pt", own, "--sequential", "--singleton", "true")
    tensors, _ = stored(own)
    name = "experts.experts.1.linear_fc1.weight_w" if case.name.startswith("moe") else "linear_fc1.weight_w"
    assert {f"decoder.layers.1.mlp.{name}", f"optimizer.state.exp_avg.decoder.layers.1.mlp.{name}"} <= set(tensors)
    for saved in (ours, own):
        tools.convert("torch-dist-to-fsdp", saved, tmp_path / f"back-{saved.name}", "--transformer-impl", "local")
    assert tools.digests(tmp_path / "back-own") == tools.digests(tmp_path / "back-ours")
    # The same model in the usual form, with those objects that local layers have.
    tools.convert("convert", own, tmp_path / "usual", "--to", "torch_dist", "--torch-dist-generation", generation)
    (usual,) = (tmp_path / "usual").glob("iter_*")
    assert stored(usual) == stored(folder) and tools.digests(usual) == tools.digests(folder)
    assert argument(usual, "transformer_impl") == "local"


@pytest.mark.parametrize("keys", ("stacked", "per_layer"))
@pytest.mark.parametrize("generation", VERSIONS)
def test_takes_alike_layers_after_singleton_shards(generation, keys, tmp_path):
    """They are stacked again, or the arguments say that they are apart: the model asks for the keys that are there."""
    run = train(tmp_path, num_experts=4, moe_ffn_hidden_size=24)
    ours, own, again = tmp_path / "ours", tmp_path / "own", tmp_path / "again"
    load = lambda path, own, *options: tools.megatron(VERSIONS[generation], "megatron_core.py", path, tmp_path / "live.pt", own,
                                                      "--sequential", *options)
    of_generation = ("--torch-dist-generation", generation)
    tools.convert("fsdp-to-torch-dist", run, ours, "--transformer-impl", "local", "--dtype", "bfloat16", *of_generation)
    (folder,) = ours.glob("iter_*")
    load(folder, own, "--singleton", "true")
    tools.convert("convert", own, again, "--to", "torch_dist", *of_generation, *(("--layer-keys", keys) if keys == "per_layer" else ()))
    (folder,) = again.glob("iter_*")
    load(folder, tmp_path / "last")
    assert stored(tmp_path / "last") == stored(folder)
    assert f"decoder.layers.{'1.' if keys == 'per_layer' else ''}mlp.router.weight" in stored(folder)[0]


@pytest.mark.parametrize("version", VERSIONS.values())
def test_newer_versions_refuse_the_older_form(version, tmp_path):
    """They still have its name, and refuse the slices that it is made of before they read anything."""
    (case,) = [c for c in RUNS if c.name == "dense_fsdp2"]
    tools.convert("fsdp-to-torch-dist", case / "ckpt", tmp_path / "ours", "--transformer-impl", "local", "--dtype", "bfloat16", *FORM)
    (folder,) = (tmp_path / "ours").glob("iter_*")
    with pytest.raises(AssertionError, match="ShardedTensor.flattened_range is not supported"):
        tools.megatron(version, "megatron_core.py", folder, tmp_path / "live.pt", tmp_path / "own", "--sequential")


@pytest.mark.parametrize("generation", VERSIONS)
def test_experts_with_an_optimizer_of_their_own(generation, tmp_path):
    """As with expert parallelism: two ranks share the experts, and each optimizer's state."""
    (case,) = [c for c in RUNS if c.name == "moe_sequential_ep2_fsdp4"]
    ours, own = tmp_path / "ours", tmp_path / "own"
    tools.convert("fsdp-to-torch-dist", case / "ckpt", ours, "--transformer-impl", "local", "--dtype", "bfloat16",
                  "--torch-dist-generation", generation, "--expert-optimizer", "separate")
    (folder,) = ours.glob("iter_*")
    done = tools.megatron(VERSIONS[generation], "megatron_core.py", folder, tmp_path / "live.pt", own, "--sequential", "--expert-ranks", 2)
    assert done["optimizers"] == 2
    assert stored(folder) == stored(own)
    want, got = load_tensors(folder), load_tensors(own)
    for key, value in want.items():
        main = want.get(f"optimizer.state.param.{key}", value)
        assert torch.equal(got[key], main.to(value.dtype)), key
    # And back: experts are in groups of their own no longer.
    tools.convert("torch-dist-to-fsdp", ours, tmp_path / "back")
    tools.convert("fsdp-to-torch-dist", tmp_path / "back", tmp_path / "again", "--transformer-impl", "local", "--dtype", "bfloat16")
    assert tools.digests(tmp_path / "again") == tools.digests(ours)


@pytest.mark.parametrize("case", [c for c in RUNS if c.name in ("dense_tied_fsdp4", "moe_ep2_fsdp4")], ids=golden.name)
def test_the_newer_version_does_too(case, tmp_path):
    check(case / "ckpt", "0.19", tmp_path)
