"""What verl's FSDP workers save is read as one model, and becomes a repository that Transformers loads."""
import pytest
import transformers

import golden
import hashing
import tools

MODELS = ["llama-tied-fp32", "qwen3-tied-bf16", "qwen2-bf16"]


@pytest.mark.parametrize("mesh", ["fsdp", "hsdp"])
@pytest.mark.parametrize("model", MODELS)
def test_the_ranks_files_are_the_model(model, mesh, tmp_path):
    source = golden.root() / "hf" / model / "ckpt"
    saved = tools.peer("2.15.0", "verl_save.py", source, tmp_path / "actor", mesh)
    expected = {key: (tensor["shape"], tensor["dtype"], tensor["sha256"]) for key, tensor in saved.items()}
    assert tools.inspect("summary", tmp_path / "actor")["format"] == "verl"
    assert tools.described(tmp_path / "actor") == expected
    assert tools.inspect("verify", tmp_path / "actor")["ok"]

    tools.convert("convert", tmp_path / "actor", tmp_path / "hf", "--to", "hf")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype="auto")
    assert {key: hashing.describe(value) for key, value in loaded.state_dict().items()} == saved
