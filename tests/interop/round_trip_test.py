"""Hugging Face -> fsdp_dtensor -> Hugging Face gives the model back, bit for bit."""
import json

import pytest
import safetensors
import safetensors.torch
import torch

import golden
import hashing
import tools
import transformers_run

MODELS = golden.models()


def weights(folder):
    return sorted(p.name for p in folder.glob("*.safetensors"))


def shard_contents(path):
    """Tensors of one shard, and its metadata."""
    with safetensors.safe_open(path, "pt") as f:
        return {k: hashing.describe(f.get_tensor(k)) for k in f.keys()}, f.metadata()


@pytest.mark.parametrize("case", MODELS, ids=golden.name)
def test_same_tensors_in_the_same_shards(case, conversions):
    source, result = case / "ckpt", conversions.back(case)
    assert weights(result) == weights(source)
    for name in weights(source):
        assert shard_contents(result / name) == shard_contents(source / name), name
        assert (result / name).read_bytes() == (source / name).read_bytes(), f"{name}: same tensors, other bytes"


@pytest.mark.parametrize("case", MODELS, ids=golden.name)
def test_side_files_byte_for_byte(case, conversions):
    source, result = case / "ckpt", conversions.back(case)
    files = lambda folder: {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert files(result) - {"ckptkit.json"} == files(source)
    for name in files(source) - set(weights(source)) - {"model.safetensors.index.json"}:
        assert (result / name).read_bytes() == (source / name).read_bytes(), name
    index = source / "model.safetensors.index.json"
    if index.exists():
        assert json.loads((result / index.name).read_text()) == json.loads(index.read_text())


@pytest.mark.parametrize("case", MODELS, ids=golden.name)
def test_logits_are_those_of_the_source(case, conversions):
    reference = transformers_run.reference(case)
    source = transformers_run.logits(case / "ckpt", reference["input_ids"])
    result = transformers_run.logits(conversions.back(case), reference["input_ids"])
    assert torch.equal(result, source)
    error = (result - reference["logits"]).abs().max() / reference["logits"].abs().max()
    # Another processor than the reference's has other kernels of torch. The weights' bits are compared above.
    assert error <= 1e-5, f"relative error {error:.2e}"


@pytest.mark.parametrize("case", MODELS, ids=golden.name)
def test_both_verify(case, conversions):
    for folder in (conversions.fsdp(case), conversions.back(case)):
        verified = tools.inspect("verify", folder)
        assert verified["ok"] and verified["protection"] == "manifest", verified
