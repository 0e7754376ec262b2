"""What real Megatron's ranks save by themselves (`--ckpt-format torch`) is read as one model, the one that they loaded."""
import pytest
import torch
import transformers

import tools
from published_model import publish

SHAPE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, vocab_size=128,
             max_position_embeddings=64)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "tied": lambda: transformers.Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True),
    "bias": lambda: transformers.Qwen2Config(**SHAPE, tie_word_embeddings=False),
    "moe": lambda: transformers.Qwen3MoeConfig(**SHAPE, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                               tie_word_embeddings=False),
    # With layers that predict further tokens.
    "further": lambda: transformers.Glm4MoeConfig(**SHAPE, head_dim=16, moe_intermediate_size=32, n_routed_experts=4,
                                                  num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, use_qk_norm=True,
                                                  tie_word_embeddings=False),
}
# Of each model: tensor, pipeline, virtual pipeline and expert ranks.
CASES = [("llama", "1,1,1,1"), ("llama", "2,2,1,1"), ("llama", "4,1,1,1"), ("llama", "1,2,2,1"), ("tied", "2,2,1,1"), ("tied", "2,1,1,1"),
         ("bias", "2,2,1,1"), ("moe", "2,1,1,1"), ("moe", "1,1,1,2"), ("moe", "2,1,1,2"), ("moe", "1,2,1,2"),
         ("further", "1,1,1,1"), ("further", "2,2,1,1"), ("further", "1,2,2,1"), ("further", "1,2,1,2")]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Name -> the repository, and the same model as torch_dist."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = publish(CONFIGS[name](), tmp_path_factory.mktemp(name), further=2 if name == "further" else 0)
        return made[name]

    return get


def saved_by_ranks(folder, sizes, out, experts="--sequential"):
    return tools.megatron("0.16.1", "mp_rank_save.py", folder / "core" / "release", out, sizes, experts)


# Grouped: the weights of all experts of a rank are one array.
GROUPED = ["1,1,1,1", "1,1,1,2", "2,1,1,1", "2,1,1,2", "1,2,1,2"]


@pytest.mark.parametrize("name,sizes,experts", [(*case, "--sequential") for case in CASES] + [("moe", sizes, "--grouped") for sizes in GROUPED],
                         ids=lambda value: value)
def test_the_ranks_files_are_the_model(name, sizes, experts, published, tmp_path):
    folder = published(name)
    saved = saved_by_ranks(folder, sizes, tmp_path / "run", experts)
    tensor, pipeline, _, expert = map(int, sizes.split(","))
    assert len(saved["files"]) == tensor * pipeline * expert
    summary = tools.inspect("summary", tmp_path / "run")
    assert (summary["format"], summary["iteration"]) == ("mp_rank", 7)
    assert any("rng_state" in problem["actual"] for problem in tools.inspect("verify", tmp_path / "run")["problems"])
    assert tools.inspect("digest", tmp_path / "run", "--as", "hf")["checkpoint"] \
        == tools.inspect("digest", folder / "hf", "--as", "hf")["checkpoint"]
    report = tools.convert("convert", tmp_path / "run", tmp_path / "hf", "--to", "hf", "--hf-assets", folder / "hf")
    assert {"args", "iteration"} <= {entry["key"] for entry in report["dropped"]}
    assert tools.digests(tmp_path / "hf") == tools.digests(folder / "hf")


def test_it_is_what_one_rank_saves(published, tmp_path):
    """Tensor by tensor, under the names of the live module."""
    for sizes in ("1,1,1,1", "2,2,1,1"):
        saved_by_ranks(published("bias"), sizes, tmp_path / sizes)
    whole = torch.load(tmp_path / "1,1,1,1/iter_0000007/mp_rank_00/model_optim_rng.pt", weights_only=False)["model"]
    read = tools.digests(tmp_path / "2,2,1,1")
    assert read == tools.digests(tmp_path / "1,1,1,1")
    assert set(read) == {f"model.{key}" for key, value in whole.items() if isinstance(value, torch.Tensor)}


def test_what_ranks_do_not_share_is_found(published, tmp_path):
    saved_by_ranks(published("llama"), "2,1,1,1", tmp_path / "run")
    path = tmp_path / "run/iter_0000007/mp_rank_01/model_optim_rng.pt"
    state = torch.load(path, weights_only=False)
    state["model"]["decoder.final_layernorm.weight"][3] += 1
    torch.save(state, path)
    code, document, _ = tools.run("ckpt-inspect", "digest", tmp_path / "run", "--json")
    assert code in (1, 3)
    assert {(error["kind"], error["tensor"]) for error in document["errors"]} == {("checksum", "model.decoder.final_layernorm.weight")}


def test_equal_experts_of_two_ranks_are_all_kept(published, tmp_path):
    """As after upcycling: that ranks hold equal numbers does not make them copies."""
    saved_by_ranks(published("moe"), "1,1,1,2", tmp_path / "run", "--grouped")
    paths = [tmp_path / f"run/iter_0000007/mp_rank_00_{rank:03}/model_optim_rng.pt" for rank in range(2)]
    first, second = (torch.load(path, weights_only=False) for path in paths)
    second["model"] |= {key: value.clone() for key, value in first["model"].items() if ".mlp.experts.weight" in key}
    torch.save(second, paths[1])
    assert tools.inspect("verify", tmp_path / "run")["ok"]
    digests = tools.digests(tmp_path / "run")
    for layer in range(SHAPE["num_hidden_layers"]):
        fc1, fc2 = ([digests[f"model.decoder.layers.{layer}.mlp.experts.linear_fc{i}.weight{e}"] for e in range(4)] for i in (1, 2))
        assert fc1[:2] == fc1[2:] and fc2[:2] == fc2[2:]


def test_a_missing_rank_is_named(published, tmp_path):
    saved_by_ranks(published("llama"), "2,1,1,1", tmp_path / "run")
    (tmp_path / "run/iter_0000007/mp_rank_01").rename(tmp_path / "away")
    code, document, _ = tools.run("ckpt-inspect", "summary", tmp_path / "run", "--json")
    assert code == 3 and document["errors"][0]["kind"] == "missing_file" and "mp_rank_01" in document["errors"][0]["actual"]
