"""Repositories whose weights torch.save wrote: `pytorch_model.bin`, and shards with an index, as huggingface_hub makes them."""
import json
import shutil

import huggingface_hub
import pytest
import safetensors.torch
import torch
import transformers

import golden
import tools

CASE = next(c for c in golden.models() if c.name == "llama-untied-bf16")


def weights_of(repository):
    tensors = {}
    for path in sorted(repository.glob("*.safetensors")):
        tensors |= safetensors.torch.load_file(path)
    return tensors


def torch_repository(folder, shard_bytes):
    """The golden model with the same weights in files of torch.save."""
    folder.mkdir()
    for path in (CASE / "ckpt").iterdir():
        if "safetensors" not in path.name:
            shutil.copyfile(path, folder / path.name)
    huggingface_hub.save_torch_state_dict(weights_of(CASE / "ckpt"), folder, safe_serialization=False, max_shard_size=shard_bytes)
    return folder


@pytest.fixture(params=["one", "many"])
def repository(request, tmp_path):
    folder = torch_repository(tmp_path / "hf", {"one": "1GB", "many": "30KB"}[request.param])
    assert ((folder / "pytorch_model.bin").exists()) == (request.param == "one")
    return folder


def test_it_is_a_model_like_any_other(repository, tmp_path):
    (repository / "training_args.bin").write_bytes(b"no weights")
    assert tools.inspect("summary", repository)["format"] == "hf"
    assert tools.inspect("verify", repository)["protection"] == "crc32"
    assert tools.digests(repository) == tools.digests(CASE / "ckpt")
    report = tools.convert("hf-to-fsdp", repository, tmp_path / "fsdp")
    left_out = {entry["key"] for entry in report["dropped"]}
    assert "training_args.bin" in left_out and not any(name.startswith("pytorch_model-") for name in left_out)
    tools.convert("fsdp-to-hf", tmp_path / "fsdp", tmp_path / "back")
    assert tools.digests(tmp_path / "back") == tools.digests(CASE / "ckpt")
    assert not list((tmp_path / "back").glob("*.bin*"))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back", dtype="auto").state_dict()
    for key, tensor in weights_of(CASE / "ckpt").items():
        assert torch.equal(loaded[key], tensor), key


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "model.safetensors"])
def test_a_missing_shard_is_one_error(weights, tmp_path):
    if weights == "pytorch_model.bin":
        folder = torch_repository(tmp_path / "hf", "30KB")
    else:
        folder = shutil.copytree(CASE / "ckpt", tmp_path / "hf")
    index = json.loads((folder / f"{weights}.index.json").read_text())
    gone = index["weight_map"]["model.layers.0.self_attn.q_proj.weight"]
    (folder / gone).unlink()
    lost = sorted(key for key, file in index["weight_map"].items() if file == gone)
    assert len(lost) > 1
    for verb in ("summary", "tensors"):
        code, document, stderr = tools.run("ckpt-inspect", verb, folder, "--json")
        assert code == 1, (verb, stderr)
        problem, = document["problems"]
        assert (problem["kind"], problem["file"], problem["tensors"]) == ("missing_file", gone, lost)
    code, document, stderr = tools.run("ckpt-convert", "hf-to-fsdp", folder, tmp_path / "out", "--json")
    assert code == 3 and len(document["errors"]) == 1 and stderr.count("error:") == 1, stderr
    assert gone in stderr and lost[0] in stderr


def test_a_missing_file_of_a_conversion_is_one_error(tmp_path):
    tools.convert("hf-to-fsdp", CASE / "ckpt", tmp_path / "fsdp", "--files", "2")
    (tmp_path / "fsdp" / "release" / "__0_1.distcp").unlink()
    for verb in ("summary", "tensors"):
        code, document, stderr = tools.run("ckpt-inspect", verb, tmp_path / "fsdp", "--json")
        assert code == 1, (verb, stderr)
        problem, = document["problems"]
        assert problem["kind"] == "missing_file" and problem["file"].endswith("__0_1.distcp")
    code, document, stderr = tools.run("ckpt-convert", "fsdp-to-hf", tmp_path / "fsdp", tmp_path / "out", "--json")
    assert code == 3 and stderr.count("error:") == 1, stderr
    error, = document["errors"]
    assert error["file"].endswith("__0_1.distcp") and len(error["tensors"]) > 1


def test_shards_without_their_index_are_said_to_lack_it(tmp_path):
    folder = torch_repository(tmp_path / "hf", "30KB")
    (folder / "pytorch_model.bin.index.json").unlink()
    code, document, _ = tools.run("ckpt-inspect", "summary", folder, "--json")
    assert code == 3 and document["errors"][0]["kind"] == "incomplete"
    assert document["errors"][0]["file"].endswith("pytorch_model.bin.index.json")


def test_what_a_training_run_leaves_is_left_out_and_listed(tmp_path):
    folder = tmp_path / "hf"
    shutil.copytree(CASE / "ckpt", folder)
    optimizer = {"state": {0: {"exp_avg": torch.zeros(20000)}}, "param_groups": []}
    nested = folder / "checkpoint-5"
    shutil.copytree(CASE / "ckpt", nested)
    (nested / "global_step5").mkdir()
    written = {"optimizer.pt": optimizer, "scheduler.pt": {"last_epoch": 1}, "rng_state_0.pth": {"cpu": torch.zeros(5056)},
               "training_args.bin": {"lr": 0.1}, "checkpoint-5/global_step5/mp_rank_00_model_states.pt": optimizer}
    for name, value in written.items():
        torch.save(value, folder / name)
    (folder / "trainer_state.json").write_text("{}")
    report = tools.convert("hf-to-fsdp", folder, tmp_path / "fsdp")
    dropped = {entry["key"]: entry for entry in report["dropped"]}
    for name in [*written, "trainer_state.json", "checkpoint-5/config.json"]:
        assert dropped[name]["bytes"] == (folder / name).stat().st_size and dropped[name]["why"], name
    carried = {path.name for path in (tmp_path / "fsdp" / "release" / "hf_assets").rglob("*")}
    assert carried == {path.name for path in (CASE / "ckpt").iterdir()} - {path.name for path in (CASE / "ckpt").glob("*.safetensors")}


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_what_git_lfs_did_not_fetch_is_named(name, tmp_path):
    folder = tmp_path / "hf"
    shutil.copytree(CASE / "ckpt", folder)
    safetensors.torch.save_file(weights_of(folder), tmp_path / "weights")
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    (tmp_path / "weights").rename(folder / "model.safetensors")
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n")
    code, document, _ = tools.run("ckpt-convert", "hf-to-fsdp", folder, tmp_path / "out", "--json")
    error, = document["errors"]
    assert code == 3 and error["kind"] == "incomplete" and error["file"].endswith(name)
    assert "Git LFS" in error["message"] and "git lfs pull" in error["hint"] and "123456" in error["expected"]
