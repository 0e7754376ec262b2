"""What verl's FSDP workers save is read as one model and its optimizer; it becomes a repository that Transformers loads, or a run."""
import json

import pytest
import torch
import transformers

import golden
import hashing
import tools

# The last one has buffers among its tensors.
MODELS = ["llama-tied-fp32", "qwen3-tied-bf16", "qwen2-bf16", "glm4moe-bf16"]


def listed(digests):
    return {key: (tensor["shape"], tensor["dtype"], tensor["sha256"]) for key, tensor in digests.items()}


@pytest.mark.parametrize("mesh", ["fsdp", "hsdp"])
@pytest.mark.parametrize("model", MODELS)
def test_the_ranks_files_are_the_model(model, mesh, tmp_path):
    source, actor = golden.root() / "hf" / model / "ckpt", tmp_path / "actor"
    saved = tools.peer("2.15.0", "verl_save.py", source, actor, mesh)
    expected = listed(saved["model"]) | {f"optim.state.{key}": value for key, value in listed(saved["optim"]).items()}
    assert tools.inspect("summary", actor)["format"] == "verl"
    assert tools.described(actor) == expected
    assert tools.inspect("verify", actor)["ok"]
    assert tools.inspect("show", actor, "optim.param_groups.0.betas")["value"] == {"$tuple": [0.9, 0.99]}

    tools.convert("convert", actor, tmp_path / "hf", "--to", "hf")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype="auto")
    assert {key: hashing.describe(value) for key, value in loaded.state_dict().items()} == saved["model"]


def losses_from(checkpoint, folder):
    """Of the steps 3 and 4, from a checkpoint behind step 2."""
    metrics = folder / f"{checkpoint.name}.jsonl"
    settings = {"load": checkpoint, "data_path": folder / "tokens.jsonl", "seq_length": 16, "global_batch_size": 2, "micro_batch_size": 1,
                "lr_decay_style": "constant", "shuffle": "false", "train_iters": 4, "restart_data": "true", "metrics": metrics}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    code, _, stderr = tools.run("ckpt-train", "--ranks", 2, *words)
    assert code == 0, stderr
    return tuple(json.loads(line)["loss"] for line in metrics.read_text().splitlines())


def test_the_optimizer_goes_on_elsewhere(tmp_path):
    source, actor = golden.root() / "hf" / "llama-tied-fp32" / "ckpt", tmp_path / "actor"
    saved = tools.peer("2.15.0", "verl_save.py", source, actor, "hsdp")
    for form, options in {"fsdp": ("fsdp_dtensor",), "core": ("torch_dist",), "fsdp2": ("dcp", "--naming", "fsdp2")}.items():
        report = tools.convert("convert", actor, tmp_path / form, "--to", *options)
        assert not [entry for entry in report["dropped"] if entry["key"].startswith("optim.state.")]
    # As get_state_dict names it, every value is the one that the optimizer had.
    fsdp2 = tools.described(tmp_path / "fsdp2")
    for key, value in listed(saved["optim"]).items():
        assert fsdp2[f"optim.state.{key}"] == value
    (tmp_path / "tokens.jsonl").write_text(json.dumps({"input_ids": [7 * i % 100 for i in range(200)]}) + "\n")
    losses = {form: losses_from(tmp_path / form, tmp_path) for form in ("actor", "fsdp2")}
    assert len(losses["actor"]) == 2 and set(losses.values()) == {losses["actor"]}


@pytest.mark.parametrize("mesh", ["fsdp1", "fsdp1-without-mesh"])
def test_flat_parameters_are_refused_by_name(mesh, tmp_path):
    """FSDP1 keeps an optimizer's state by ranges of what it flattened. The model, of DTensors or ShardedTensors, is read all the same."""
    source, actor = golden.root() / "hf" / "llama-tied-fp32" / "ckpt", tmp_path / "actor"
    saved = tools.peer("2.15.0", "verl_save.py", source, actor, mesh)
    assert tools.described(actor) == listed(saved["model"])
    warnings = tools.inspect("verify", actor)["problems"]
    (refusal,) = [warning for warning in warnings if "flat parameters" in warning["message"]]
    assert refusal["file"] == "optim_world_size_4_rank_0.pt" and "FSDP1" in refusal["hint"]
    (unread,) = [warning for warning in warnings if warning["kind"] == "leftover"]
    assert unread["actual"].startswith("optim, ")
