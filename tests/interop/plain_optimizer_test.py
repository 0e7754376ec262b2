"""What real Megatron-Core's optimizers that are not distributed save as torch_dist is a training state like any other."""
import json

import pytest
import torch
import transformers

import tools
from megatron_core_test import VERSIONS, stored
from megatron_keys_test import load_tensors
from published_model import publish

SHAPE = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, vocab_size=128, max_position_embeddings=64)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, intermediate_size=96, tie_word_embeddings=False),
    "moe": lambda: transformers.Qwen3MoeConfig(**SHAPE, head_dim=16, intermediate_size=96, num_experts=4, num_experts_per_tok=2,
                                               moe_intermediate_size=32, tie_word_embeddings=False),
}
# Tensor, pipeline, virtual pipeline, expert and data-parallel ranks. Experts that are divided have an optimizer of their own.
CASES = [("llama", "2,1,1,1,1"), ("llama", "1,1,1,1,1", "--fp32"), ("moe", "1,1,1,2,2"), ("llama", "1,1,1,1,1", "--sgd"),
         ("llama", "1,1,1,1,1", "--sgd", "--no-momentum"), ("llama", "1,1,1,1,1", "--sgd", "--no-momentum", "--fp32")]
# What has another name in fully_reshardable form.
NAMES = {"fp32_param": "param"}
# What torch's optimizers have of themselves if a group does not say it.
DEFAULTS = {"amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
# What not every version of Megatron-Core says.
OURS = {"step", "is_expert_parallel", "default_config", "is_decoupled_lr", "max_lr", "min_lr"}


def groups_of(run):
    """The parameter groups in the common state, of all optimizers."""
    def listed(state):
        if "param_groups" in state:
            return state["param_groups"]
        return listed(state["optimizer"]) if "optimizer" in state else [group for _, one in state["$dict"] for group in listed(one)]

    return listed(tools.inspect("show", run, "common_state")["value"]["optimizer"])


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Name -> the model as torch_dist."""
    folders = {name: publish(make(), tmp_path_factory.mktemp(name)) / "core" / "release" for name, make in CONFIGS.items()}
    return folders.get


def states(tensors):
    """The optimizer's, under the names of fully_reshardable form."""
    found = {}
    for key, value in tensors.items():
        words = key.removeprefix("chained_0.").removeprefix("chained_1.").split(".", 3)
        if words[:2] == ["optimizer", "state"]:
            found[f"optimizer.state.{NAMES.get(words[2], words[2])}.{words[3]}"] = value
    return found


@pytest.mark.parametrize("generation", VERSIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case))
def test_every_value_arrives_and_comes_back(case, generation, published, tmp_path):
    name, sizes, *options = case
    tools.megatron(VERSIONS[generation], "mp_rank_train.py", published(name), tmp_path / "run", sizes, "plain", "--sequential", *options)
    run = tmp_path / "run/core"
    want = load_tensors(run / "iter_0000007")
    moments = {"momentum_buffer"} if "--sgd" in options else {"exp_avg", "exp_avg_sq"}
    if "--no-momentum" in options:
        moments = set()
    assert {key.split(".")[2] for key in states(want)} == moments | ({"param"} if "--fp32" not in options else set())
    held = tmp_path / "run.h5"
    report = tools.convert("to-hdf5", run, held)
    assert all("._extra_state/" in entry["key"] for entry in report["dropped"])
    chains = [(run, "dcp", "--naming", "fsdp2"), (run, "fsdp_dtensor"), (held, "dcp", "--naming", "fsdp2"), (held, "torch_dist")]
    for number, (source, to, *naming) in enumerate(chains):
        there, back = tmp_path / f"{number}", tmp_path / f"{number}-back"
        report = tools.convert("convert", source, there, "--to", to, *naming)
        assert all("._extra_state/" in entry["key"] for entry in report["dropped"])  # each is [None]
        tools.convert("convert", there, back, "--to", "torch_dist", "--transformer-impl", "local", "--torch-dist-generation", generation)
        got = load_tensors(back / "iter_0000007")
        for key, value in states(want).items():
            assert torch.equal(got[key], value), key
        weights = {key: value for key, value in want.items() if "optimizer.state." not in key}
        for key, value in weights.items():
            assert torch.equal(got[key].to(value.dtype), value), key
        (group, *_) = groups_of(back)
        assert group["step"] == 3  # SGD does not count updates, but the schedule does
        assert "--sgd" in options or group["betas"] == {"$tuple": [0.9, 0.95]}
        for mine, real in ((mine, real) for mine in groups_of(back) for real in groups_of(run) if mine["wd_mult"] == real["wd_mult"]):
            said = set(real) - {"params", "is_expert_parallel"}
            assert {name: mine[name] for name in said & set(mine)} == {name: real[name] for name in said & set(mine)}
            assert said - set(mine) <= DEFAULTS
            assert set(mine) - set(real) <= OURS | (set() if "--sgd" in options else {"bias_correction"})
        if "--no-momentum" in options:  # whether it keeps exact weights or nothing at all
            # Where weights are stored once, they are the exact ones.
            other = back if "--fp32" in options or to == "torch_dist" else there
            code, said, _ = tools.run("ckpt-inspect", "diff", run, other)
            assert code == 0, said
        elif "--sgd" in options:  # torch's own goes on with them
            weight = torch.nn.Parameter(torch.ones(2))
            optimizer = torch.optim.SGD([weight], lr=1.0)
            optimizer.load_state_dict({"state": {}, "param_groups": [group | {"params": [0]}]})
            weight.sum().backward()
            optimizer.step()
            assert optimizer.param_groups[0]["momentum"] == 0.9 and optimizer.state[weight]["momentum_buffer"].shape == (2,)


def test_sgd_without_momentum_goes_on_under_fsdp2(published, tmp_path):
    """Its groups are all that there is of the optimizer. Real FSDP2 takes them, in both forms, and in one file that torch.load opens."""
    folder, hub = published("llama"), published("llama").parents[1] / "hf"
    options = ("1,1,1,1,1", "plain", "--sequential", "--sgd", "--no-momentum", "--fp32")
    tools.megatron(VERSIONS["0.19"], "mp_rank_train.py", folder, tmp_path / "run", *options)
    (decayed, *_) = groups_of(tmp_path / "run/core")
    jobs = []
    for form in ("nested", "flattened"):
        there = tmp_path / form
        tools.convert("convert", tmp_path / "run/core", there, "--to", "dcp", "--naming", "fsdp2", "--optimizer-state-dict", form)
        jobs.append(("load_sgd", str(hub), str(there), form, 0))
    for (_, _, there, form, _), told in zip(jobs, tools.peer("2.15.0", "fsdp2_run.py", 2, json.dumps(jobs), timeout=900)):
        want = {key: {"shape": s, "dtype": d, "sha256": h} for key, (s, d, h) in tools.described(there).items()}
        assert told["state"] == want
        rates = {value for key, value in told["objects"].items() if key.startswith("optim.") and key.endswith(".lr")}
        assert rates == {decayed["lr"]}
    tools.convert("convert", tmp_path / "run/core", tmp_path / "run.pt", "--to", "torch_save", "--naming", "fsdp2")
    assert torch.load(tmp_path / "run.pt", weights_only=True)["optim"]["state"] == {}


@pytest.mark.parametrize("verb", ["sgd", "heavy_sgd"])
@pytest.mark.parametrize("form", ["nested", "flattened"])
def test_sgd_of_fsdp2_goes_there_and_back(published, tmp_path, verb, form):
    """torch's SGD counts no updates: they count from 0 elsewhere, with a warning, and FSDP2 goes on with the same losses."""
    hub, saved = published("llama").parents[1] / "hf", tmp_path / "theirs"
    (before,) = tools.peer("2.15.0", "fsdp2_run.py", 2, json.dumps([(verb, str(hub), str(saved), form, 2)]), timeout=900)
    jobs = []
    for to in ("torch_dist", "fsdp_dtensor"):
        there, back = tmp_path / to, tmp_path / f"{to}-back"
        code, _, said = tools.run("ckpt-convert", "convert", saved, there, "--to", to, "--hf-assets", hub)
        assert code == 0 and "nothing says how often the optimizer has updated" in said, said
        tools.convert("convert", there, back, "--to", "dcp", "--naming", "fsdp2", "--optimizer-state-dict", form)
        jobs.append((f"load_{verb}", str(hub), str(back), form, 2))
    for (_, _, back, _, _), told in zip(jobs, tools.peer("2.15.0", "fsdp2_run.py", 2, json.dumps(jobs), timeout=900)):
        assert told["state"] == before["state"], back
        assert (told["loss"], told["next_loss"]) == (before["loss"], before["next_loss"]), back
