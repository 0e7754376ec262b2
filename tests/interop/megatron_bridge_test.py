"""Real Megatron-Bridge takes our trees: it makes its classes of run_config.yaml, builds the model and loads it. And we take what it writes."""
import json
import shutil

import pytest
import torch

import golden
import packages
import tools
from megatron_core_test import live_tensors
from megatron_keys_test import load_tensors

MODELS = [c for c in golden.models() if c.name in ("llama-untied-bf16", "qwen3-tied-bf16", "qwen3moe-mixed-bf16", "qwen3moe-norm-bf16",
                                                   "gptoss-square-bf16")]
DENSE = [c for c in MODELS if c.name == "qwen3-tied-bf16"]
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
RUNS = [c for c in golden.cases("fsdp_dtensor") if c.name in ("dense_tied_fsdp4", "moe_ep2_fsdp4")]


def bridge(verb, *arguments):
    return tools.peer("2.15.0", "megatron_bridge.py", packages.megatron_core("0.16.1"), packages.megatron_bridge("0.3.1"), verb, *arguments)


@pytest.mark.parametrize("case", MODELS, ids=golden.name)
def test_builds_and_loads_a_model(case, tmp_path):
    ours, live = tmp_path / "ours", tmp_path / "live.pt"
    tools.convert("hf-to-torch-dist", case / "ckpt", ours, "--transformer-impl", "local", "--tree", "megatron-bridge")
    done = bridge("read", ours, live)
    assert done["folder"] == str(ours / "release") and done["progress"]["step"] == 0
    published = {f.name for f in (case / "ckpt").iterdir()}
    assert done["has_tokenizer"] == ("tokenizer.json" in published)
    kept = {f.name for f in (ours / "release" / "tokenizer").glob("*")}
    assert kept == {n for n in published if n.startswith(("tokenizer", "special_tokens_map", "chat_template", "vocab", "merges"))}
    got = torch.load(live)
    for key, value in live_tensors(case, "0.16.1").items():
        padded = torch.zeros_like(got[key])
        padded[:value.shape[0]] = value
        assert torch.equal(got[key], padded), key


@pytest.mark.parametrize("case", DENSE, ids=golden.name)
def test_builds_a_model_of_another_family_with_yarn(case, tmp_path):
    """Its only class with yarn has the defaults of gpt-oss: none of them may be left."""
    hf, ours, again, live = (tmp_path / name for name in ("hf", "ours", "again", "live.pt"))
    shutil.copytree(case / "ckpt", hf)
    (hf / "config.json").write_text(json.dumps(golden.config(case) | {"rope_scaling": None, "rope_parameters": YARN}))
    options = ("--transformer-impl", "local", "--tree", "megatron-bridge")
    tools.convert("hf-to-torch-dist", hf, ours, *options)
    done = bridge("read", ours, live)
    assert done["classes"]["model"] == "GPTOSSProvider"
    got = torch.load(live)
    for key, value in live_tensors(case, "0.16.1").items():
        assert torch.equal(got[key][:value.shape[0]], value), key
    model = done["run_config"]["model"]
    assert model["yarn_rotary_scaling_factor"] == 4.0 and model["yarn_original_max_position_embeddings"] == 32
    assert model["window_size"] is None and model["softmax_type"] == "vanilla" and not model["moe_permute_fusion"]
    # What it writes itself of this class is read, and says the same model.
    bridge("rewrite", ours, "-")
    tools.convert("convert", ours / "release", again, "--to", "torch_dist", *options)
    back = bridge("read", again, "-")["run_config"]["model"]
    assert {name: back[name] for name in model} == model


@pytest.mark.parametrize("case", RUNS, ids=golden.name)
def test_takes_a_run_and_gives_it_back(case, tmp_path):
    ours, live, back, again = (tmp_path / name for name in ("ours", "live.pt", "back", "again"))
    options = ("--transformer-impl", "local", "--dtype", "bfloat16", "--tree", "megatron-bridge")
    tools.convert("fsdp-to-torch-dist", case / "ckpt", ours, *options)
    want = tools.digests(ours)
    done = bridge("read", ours, live)
    (folder,) = ours.glob("iter_*")
    assert done["folder"] == str(folder)
    common = torch.load(folder / "common.pt", weights_only=False)
    assert done["progress"]["step"] == common["iteration"]
    assert done["progress"]["consumed_train_samples"] == common["args"].consumed_train_samples
    assert done["progress"]["floating_point_operations_so_far"] == common["num_floating_point_operations_so_far"]
    stored, got = load_tensors(folder), torch.load(live)
    for key, value in got.items():
        main = stored.get(f"optimizer.state.param.{key}")
        if main is not None:
            assert torch.equal(value, main.to(value.dtype)), key
    # Without `args` and our manifest, its own files say what model and run it is.
    bridge("rewrite", ours, "-")
    tools.convert("torch-dist-to-fsdp", ours, back, "--transformer-impl", "local", "--tree", "megatron-bridge")
    tools.convert("fsdp-to-torch-dist", back, again, *options)
    assert tools.digests(again) == want
    assert (back / "latest_train_state.pt").read_bytes() == next(back.glob("iter_*/train_state.pt")).read_bytes()
    (folder,) = back.glob("iter_*")
    assert tools.inspect("show", back, "train_state")["value"] == done["progress"]


@pytest.mark.parametrize("case", RUNS, ids=golden.name)
def test_takes_the_tree_of_a_run_of_megatron_fsdp(case, tmp_path):
    """The same of fsdp_dtensor, whose tensors Megatron-FSDP alone loads: it needs a GPU."""
    want, ours, back = (tmp_path / name for name in ("want", "ours", "back"))
    options = ("--transformer-impl", "local")
    tools.convert("fsdp-to-torch-dist", case / "ckpt", want, *options)
    tools.convert("torch-dist-to-fsdp", want, ours, *options, "--tree", "megatron-bridge")
    (folder,) = ours.glob("iter_*")
    done = bridge("read", ours, "-")
    assert done["folder"] == str(folder) and done["progress"]["step"] == tools.inspect("summary", ours)["iteration"]
    assert {"model", "optimizer", "scheduler", "train", "ddp", "rng"} <= set(done["classes"])
    bridge("rewrite", ours, "-")
    assert "args" not in {entry["key"] for entry in tools.inspect("tensors", ours)["objects"]}
    assert tools.inspect("show", ours, "train_state")["value"] == done["progress"]
    tools.convert("fsdp-to-torch-dist", ours, back, *options)
    assert tools.digests(back) == tools.digests(want)
    groups = [tools.inspect("show", path, "common_state")["value"]["optimizer"] for path in (want, back)]
    assert groups[0] == groups[1]
