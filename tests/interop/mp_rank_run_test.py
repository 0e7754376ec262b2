"""What optimizers of real Megatron's ranks save by themselves (`--ckpt-format torch`) is the training state that they save as torch_dist."""
import json
import shutil

import pytest
import torch
import transformers

import packages
import tools
from published_model import publish

SHAPE = dict(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=128, max_position_embeddings=64)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, hidden_size=64, intermediate_size=96, tie_word_embeddings=False),
    "tied": lambda: transformers.Qwen3Config(**SHAPE, hidden_size=64, intermediate_size=96, head_dim=16, tie_word_embeddings=True),
    # No size is a multiple of 64: buffers have gaps, which depend on the buckets.
    "gaps": lambda: transformers.Qwen3Config(**SHAPE, hidden_size=36, intermediate_size=20, head_dim=10, tie_word_embeddings=True),
    "biases": lambda: transformers.Qwen2Config(**SHAPE, hidden_size=64, intermediate_size=96, tie_word_embeddings=False),
    "mla": lambda: transformers.DeepseekV3Config(**(SHAPE | {"num_key_value_heads": 4}), hidden_size=64, intermediate_size=96,
                                                 moe_intermediate_size=32, q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16,
                                                 n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, first_k_dense_replace=1, n_shared_experts=1,
                                                 tie_word_embeddings=False),
    "moe": lambda: transformers.Qwen3MoeConfig(**SHAPE, hidden_size=64, head_dim=16, intermediate_size=96, num_experts=4, num_experts_per_tok=2,
                                               moe_intermediate_size=32, tie_word_embeddings=False),
    # With layers that predict further tokens.
    "further": lambda: transformers.Glm4MoeConfig(**SHAPE, hidden_size=64, intermediate_size=96, head_dim=16, moe_intermediate_size=32, n_routed_experts=4,
                                                  num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, use_qk_norm=True,
                                                  tie_word_embeddings=False),
}
# Of each model: tensor, pipeline, virtual pipeline, expert and data-parallel ranks, and the optimizer.
CASES = [("llama", "1,2,2,1,2", "distributed"), ("llama", "1,2,2,1,1", "plain", "--fp32"), ("tied", "2,2,1,1,1", "distributed"),
         ("tied", "2,1,1,1,1", "plain"), ("moe", "2,1,1,2,2", "distributed"), ("moe", "1,2,1,2,2", "plain"), ("moe", "1,2,1,2,2", "distributed"),
         ("llama", "1,1,1,1,1", "plain", "--sgd"), ("tied", "2,2,1,1,1", "plain", "--sgd", "--fp32"),
         ("llama", "1,2,1,1,1", "plain", "--decoupled"), ("tied", "2,2,1,1,1", "plain", "--decoupled"),
         ("moe", "1,1,1,2,2", "distributed", "--decoupled"), ("further", "2,2,1,1,1", "distributed"), ("further", "1,2,1,2,2", "plain"),
         ("further", "1,2,2,1,1", "distributed"),
         # The weights of all experts of a rank are one array.
         ("moe", "1,1,1,1,1", "plain", "--grouped"), ("moe", "2,1,1,2,2", "plain", "--grouped"), ("moe", "2,1,1,2,2", "distributed", "--grouped")]
# Slow: norms are all ones in bfloat16 still, so that values do not tell them apart.
BUFFERS = [(*case, "--buffers") for case in CASES if case[2] == "distributed" and "--grouped" not in case] + [
    (name, sizes, "distributed", "--buffers", *options) for name, sizes, *options in (
        ("tied", "2,2,1,1,1", "--slow"), ("moe", "1,2,1,2,2", "--slow"), ("llama", "1,1,1,1,2", "--fp32"), ("mla", "1,1,1,1,2"),
        ("mla", "1,1,1,2,2", "--slow"), ("mla", "2,1,1,1,1"), ("biases", "2,1,1,1,1", "--slow"), ("further", "1,2,1,1,2", "--slow"))]
# The same, whose buffers are cut in buckets of so many elements.
GAPS = [("1,1,1,1,2", 3000), ("2,2,2,1,1", 700), ("1,2,1,1,2", None)]
# Forms with names of their own for weights, exact values and moments.
TARGETS = [("torch_dist",), ("dcp", "--naming", "fsdp2")]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Name -> the model as torch_dist."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = publish(CONFIGS[name](), tmp_path_factory.mktemp(name), further=2 if name == "further" else 0) / "core" / "release"
        return made[name]

    return get


@pytest.fixture(scope="module")
def trained(published, tmp_path_factory):
    """A case -> the folder of its run, which several tests read."""
    made = {}

    def get(name, sizes, kind, *options, version="0.16.1"):
        case = (name, sizes, kind, version, *options)
        if case not in made:
            made[case] = tmp_path_factory.mktemp("run")
            tools.megatron(version, "mp_rank_train.py", published(name), made[case], sizes, kind, *options)
        return made[case]

    return get


def is_same_run(ours, theirs, scratch):
    """Whether two checkpoints become the same in each of the targets."""
    for to, *options in TARGETS:
        converted = [scratch / f"{to}-{side}" for side in ("ours", "theirs")]
        reports = [tools.convert("convert", source, target, "--to", to, *options) for source, target in zip((ours, theirs), converted)]
        # Of FP8, and each is [None].
        assert [entry["key"] for entry in reports[0]["dropped"] if "._extra_state/" not in entry["key"]] == []
        digests = [tools.digests(path) for path in converted]
        assert digests[0] == digests[1] and any("exp_avg" in key or "momentum_buffer" in key for key in digests[0])
    common = [tools.inspect("show", scratch / f"torch_dist-{side}", "common_state")["value"] for side in ("ours", "theirs")]
    assert common[0] == common[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case))
def test_the_ranks_files_are_the_training_state(case, trained, tmp_path):
    run = trained(*case)
    summary = tools.inspect("summary", run / "legacy")
    assert (summary["format"], summary["iteration"]) == ("mp_rank", 7)
    problems = tools.inspect("verify", run / "legacy")["problems"]
    assert [problem["actual"].split(",")[0] for problem in problems] == ["rng_state"]
    is_same_run(run / "legacy", run / "core", tmp_path)


@pytest.mark.parametrize("case", BUFFERS, ids=lambda case: " ".join(case))
def test_buffers_are_the_training_state(case, trained, tmp_path):
    """What the distributed optimizer saves by default: which weight lies where in its buffers is found by values and by order."""
    run = trained(*case)
    is_same_run(run / "buffers", run / "core", tmp_path)


# Of stages with layers that predict further tokens it is not known which has what. Buckets are full at multiples of 128: others are damaged
# in what Megatron-Core itself saves as fully_reshardable.
PREDICTED = [case for case in BUFFERS if case[0] != "further"] + [
    ("llama", "1,2,1,1,2", "distributed", "--buffers", "--bucket", "30800"), ("moe", "1,1,1,2,2", "distributed", "--buffers", "--bucket", "3000")]
WRITTEN = [(known, *case) for known, cases in (("buffers", BUFFERS), ("core", PREDICTED)) for case in cases]
FORM = ("--to", "torch_dist", "--optimizer-form", "dp_reshardable")


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: " ".join(case))
def test_buffers_are_written_for_the_same_ranks(case, trained, published, tmp_path):
    """A run becomes the same buffers, whether it stores them or they follow from its arguments. Real Megatron's ranks load them, and then
    hold what they held."""
    known, name, sizes, kind, *options = case
    run = trained(*case[1:])
    tools.convert("convert", run / known, tmp_path / "ours", *FORM)
    own, ours = (tools.inspect("tensors", path) for path in (run / "buffers", tmp_path / "ours"))
    shapes = [{t["key"]: (t["shape"], t["dtype"]) for t in stored["tensors"]} for stored in (own, ours)]
    assert shapes[0] == shapes[1]
    keys = [{o["key"] for o in stored["objects"]} for stored in (own, ours)]
    assert keys[0] == {key for key in keys[1] if not key.startswith("rng_state/")}
    sized = [key for key in keys[0] if ".per_bucket_numel" in key]
    assert sized and all(tools.inspect("show", run / "buffers", key)["value"] == tools.inspect("show", tmp_path / "ours", key)["value"] for key in sized)
    is_same_run(run / "buffers", tmp_path / "ours", tmp_path)
    (folder,) = (tmp_path / "ours").glob("iter_*")
    tools.megatron("0.16.1", "mp_rank_train.py", published(name), tmp_path / "loaded", sizes, kind, *options, "--load", folder)
    assert tools.digests(tmp_path / "loaded/core") == tools.digests(run / "core")


def test_what_does_not_follow_from_arguments_is_refused(trained, tmp_path):
    run = trained("further", "1,2,2,1,1", "distributed", "--buffers")
    code, _, stderr = tools.run("ckpt-convert", "convert", run / "core", tmp_path / "ours", *FORM)
    assert code == 3 and "args.mtp_num_layers" in stderr and "--optimizer-form fully_reshardable" in stderr


@pytest.mark.parametrize("case", BUFFERS[-7:], ids=lambda case: " ".join(case))
def test_buffers_of_the_newer_version(case, trained, tmp_path):
    run = trained(*case, version="0.19.2")
    is_same_run(run / "buffers", run / "core", tmp_path)


def test_layers_that_predict_further_tokens_of_the_newer_version(trained, tmp_path):
    """Whose ranks call the layer inside one otherwise than dist_checkpointing does."""
    run = trained("further", "1,2,1,1,2", "distributed", "--buffers", "--slow", version="0.19.2")
    stored = tools.described(run / "legacy")
    assert any(".mtp_model_layer." in key for key in stored) and not any(".transformer_layer." in key for key in stored)
    is_same_run(run / "legacy", run / "core", tmp_path)


@pytest.mark.parametrize("case", [case for case in CASES if "--decoupled" in case], ids=lambda case: " ".join(case))
def test_embedding_and_head_keep_a_rate_of_their_own(case, trained, tmp_path):
    tools.convert("convert", trained(*case) / "legacy", tmp_path / "fsdp2", "--to", "dcp", "--naming", "fsdp2")
    show = lambda key: tools.inspect("show", tmp_path / "fsdp2", key)["value"]
    rates = {name: show(f"optim.param_groups.{g}.initial_lr") for g in range(3) for name in show(f"optim.param_groups.{g}.params")}
    own = {name for name, rate in rates.items() if rate == 0.003}
    assert own == {"model.embed_tokens.weight"} | ({"lm_head.weight"} if case[0] != "tied" else set())
    assert {rates[name] for name in set(rates) - own} == {0.01}
    # And back: each group has what Megatron said of it.
    tools.convert("convert", tmp_path / "fsdp2", tmp_path / "back", "--to", "torch_dist")
    tools.convert("convert", trained(*case) / "legacy", tmp_path / "there", "--to", "torch_dist")
    states = [tools.inspect("show", tmp_path / name, "common_state")["value"]["optimizer"] for name in ("there", "back")]
    assert states[0] == states[1]


@pytest.mark.parametrize("sizes,bucket", GAPS, ids=lambda value: str(value))
def test_gaps_between_parameters_are_known(sizes, bucket, trained, tmp_path):
    """Megatron-Core's own torch_dist is damaged here, so the same training with another optimizer is the reference."""
    options = [] if bucket is None else ["--bucket", str(bucket)]
    runs = {"buffers": trained("gaps", sizes, "distributed", *options), "plain": trained("gaps", sizes, "plain")}
    for to, *named in TARGETS:
        for kind, run in runs.items():
            tools.convert("convert", run / "legacy", tmp_path / f"{to}-{kind}", "--to", to, *named)
        assert tools.digests(tmp_path / f"{to}-buffers") == tools.digests(tmp_path / f"{to}-plain")


@pytest.mark.parametrize("ranks,bucket", [(2, 700), (3, 10**9)])
def test_buckets_of_old_releases_are_read(ranks, bucket, trained, tmp_path):
    """Megatron-Core 0.6 stores buckets one by one, without room between parameters."""
    model = trained("gaps", "1,1,1,1,1", "plain") / "legacy/iter_0000007/mp_rank_00/model_optim_rng.pt"
    done = tools.peer("2.15.0", "mp_rank_buckets.py", packages.megatron_core("0.6.0"), model, tmp_path, ranks, bucket)
    assert (done["buckets"][0] > 1) == (bucket == 700)
    for to, *named in TARGETS:
        for kind in ("distributed", "plain"):
            tools.convert("convert", tmp_path / kind, tmp_path / f"{to}-{kind}", "--to", to, *named)
        digests = [tools.digests(tmp_path / f"{to}-{kind}") for kind in ("distributed", "plain")]
        assert digests[0] == digests[1] and any("exp_avg" in key for key in digests[0])


def test_our_trainer_goes_on_from_them(trained, tmp_path):
    run = trained("tied", "2,2,1,1,1", "distributed", "--buffers")
    lines = [json.dumps({"input_ids": [(7 * line + 3 * i) % 128 for i in range(33)]}) for line in range(64)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")
    for form in ("legacy", "core", "buffers"):
        code, _, stderr = tools.run(
            "ckpt-train", "train", "--load", run / form, "--save", tmp_path / f"{form}-on", "--set", "restart_data=true",
            "--set", f"data_path={tmp_path / 'data.jsonl'}", "--set", "seq_length=16", "--set", "train_iters=9", "--set", "save_interval=2")
        assert code == 0, stderr
    legacy, core, buffers = (tools.digests(tmp_path / f"{form}-on") for form in ("legacy", "core", "buffers"))
    assert legacy == core and buffers == core


def test_what_is_not_adam_of_these_parameters_is_refused(trained, tmp_path):
    """The model is read, and a warning says why the optimizer is not, and what it takes."""
    shutil.copytree(trained("llama", "1,2,2,1,2", "distributed"), tmp_path / "run")
    path = tmp_path / "run/legacy/iter_0000007/mp_rank_00_000/distrib_optim.pt"
    state = torch.load(path, weights_only=False)
    buffers = next(iter(state[0].values()))
    for name in ("param", "exp_avg", "exp_avg_sq"):
        buffers[name] = torch.roll(buffers[name], 64)
    torch.save(state, path)
    problems = tools.inspect("verify", tmp_path / "run/legacy")["problems"]
    assert {problem["kind"] for problem in problems} == {"value_mismatch", "leftover"}
    assert any("optimizer, rng_state, distrib_optim.pt, " in problem["actual"] for problem in problems)
    report = tools.convert("convert", tmp_path / "run/legacy", tmp_path / "converted", "--to", "torch_dist")
    assert not any("exp_avg" in key for key in tools.digests(tmp_path / "converted")) and report["problems"]
