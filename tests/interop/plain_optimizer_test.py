"""What real Megatron-Core's optimizers that are not distributed save as torch_dist is a training state like any other."""
import pytest
import torch
import transformers

import tools
from megatron_core_test import VERSIONS, core, stored  # noqa: F401, core is a fixture
from megatron_keys_test import load_tensors
from published_model import publish

SHAPE = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, vocab_size=128, max_position_embeddings=64)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, intermediate_size=96, tie_word_embeddings=False),
    "moe": lambda: transformers.Qwen3MoeConfig(**SHAPE, head_dim=16, intermediate_size=96, num_experts=4, num_experts_per_tok=2,
                                               moe_intermediate_size=32, tie_word_embeddings=False),
}
# Tensor, pipeline, virtual pipeline, expert and data-parallel ranks. Experts that are divided have an optimizer of their own.
CASES = [("llama", "2,1,1,1,1"), ("llama", "1,1,1,1,1", "--fp32"), ("moe", "1,1,1,2,2"), ("llama", "1,1,1,1,1", "--sgd")]
# What has another name in fully_reshardable form.
NAMES = {"fp32_param": "param"}


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
def test_every_value_arrives_and_comes_back(case, generation, published, core, tmp_path):
    name, sizes, *options = case
    tools.peer("2.15.0", "mp_rank_train.py", core(VERSIONS[generation]), published(name), tmp_path / "run", sizes, "plain", "--sequential", *options)
    run = tmp_path / "run/core"
    want = load_tensors(run / "iter_0000007")
    moments = {"momentum_buffer"} if "--sgd" in options else {"exp_avg", "exp_avg_sq"}
    assert {key.split(".")[2] for key in states(want)} == moments | ({"param"} if "--fp32" not in options else set())
    for to, *naming in (("dcp", "--naming", "fsdp2"), ("fsdp_dtensor",)):
        there, back = tmp_path / to, tmp_path / f"{to}-back"
        report = tools.convert("convert", run, there, "--to", to, *naming)
        assert all("._extra_state/" in entry["key"] for entry in report["dropped"])  # each is [None]
        tools.convert("convert", there, back, "--to", "torch_dist", "--transformer-impl", "local", "--torch-dist-generation", generation)
        got = load_tensors(back / "iter_0000007")
        for key, value in states(want).items():
            assert torch.equal(got[key], value), key
        weights = {key: value for key, value in want.items() if "optimizer.state." not in key}
        for key, value in weights.items():
            assert torch.equal(got[key].to(value.dtype), value), key
        (group, *_) = tools.inspect("show", back, "common_state")["value"]["optimizer"]["optimizer"]["param_groups"]
        assert group["step"] == 3  # SGD does not count updates, but the schedule does
        assert "--sgd" in options or group["betas"] == {"$tuple": [0.9, 0.95]}
