"""Quantised repositories: what real Transformers makes of the decoded weights that we write."""
import json
import shutil

import pytest
import safetensors
import safetensors.torch

import golden
import hashing
import tools
import transformers_run

CASES = golden.quantised()


def weights(folder):
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safetensors.safe_open(file, "pt") as f:
            tensors |= {key: f.get_tensor(key) for key in f.keys()}
    return tensors


@pytest.mark.parametrize("case", CASES, ids=golden.name)
def test_the_values_are_those_of_the_account(case, conversions):
    account = golden.account(case)
    # gpt-oss has its experts transposed in bfloat16.
    values = account["dequantised"] | account.get("dequantised_transposed", {})
    written = weights(conversions.back(case))
    assert {key: hashing.describe(written[key]) for key in values} == values
    plain = {k: v for k, v in account["tensors"].items() if v["dtype"] == "bfloat16" or k.endswith("e_score_correction_bias")}
    assert {key: hashing.describe(written[key]) for key in plain} == plain
    assert written.keys() == values.keys() | plain.keys()


@pytest.mark.parametrize("case", CASES, ids=golden.name)
def test_transformers_computes_the_reference(case, conversions):
    reference = transformers_run.reference(case)
    logits = transformers_run.logits(conversions.back(case), reference["input_ids"])
    error = (logits - reference["logits"]).abs().max() / reference["logits"].abs().max()
    # Another processor than the reference's has other kernels of torch. The weights' bits are compared above.
    assert error <= 1e-5, f"relative error {error:.2e}"


@pytest.mark.parametrize("case", CASES, ids=golden.name)
def test_the_configuration_speaks_of_plain_weights(case, conversions):
    published = golden.config(case)
    method = published.pop("quantization_config")["quant_method"]
    for config in (conversions.back(case) / "config.json", next(conversions.fsdp(case).rglob("config.json"))):
        assert json.loads(config.read_text()) == published
    assert next(conversions.fsdp(case).rglob("ckptkit.json")).read_text().count(f'"decoded":"{method}"') == 1


@pytest.mark.parametrize("case", CASES, ids=golden.name)
def test_a_conversion_says_that_it_decodes(case, tmp_path):
    report = tools.convert("hf-to-torch-dist", case / "ckpt", tmp_path / "out")
    warning, = [p for p in report["problems"] if "decoded" in p["message"]]
    method = golden.config(case)["quantization_config"]["quant_method"]
    assert warning["severity"] == "warning" and method in warning["message"], warning
    assert warning["message"].startswith(f"{len(golden.account(case)['dequantised'])} weights")


@pytest.mark.parametrize("case", CASES, ids=golden.name)
def test_a_comparison_decodes(case, conversions):
    for written in (conversions.fsdp(case), conversions.back(case)):
        assert tools.inspect("diff", case / "ckpt", written)["equal"]


@pytest.mark.parametrize("case", [c for c in CASES if (c / "ckpt" / "model.safetensors").exists()], ids=golden.name)
def test_damage_in_codes_and_scales_is_found(case, tmp_path):
    """What is decoded was compared with the checksums of the repository, if it has some."""
    stored = tmp_path / "stored"
    tools.convert("convert", case / "ckpt", stored, "--to", "safetensors")
    shutil.copy(case / "ckpt" / "config.json", stored)
    tools.convert("hf-to-fsdp", stored, tmp_path / "good")
    scales = next(k for k in golden.account(case)["tensors"] if k.endswith(("_scale_inv", "_scales")))
    file = next(f for f in stored.glob("*.safetensors") if scales in safetensors.safe_open(f, "pt").keys())
    data = bytearray(file.read_bytes())
    payload = 8 + int.from_bytes(data[:8], "little")
    begin = payload + json.loads(data[8:payload])[scales]["data_offsets"][0]
    data[begin] ^= 1
    file.write_bytes(data)
    code, document, stderr = tools.run("ckpt-convert", "hf-to-fsdp", stored, tmp_path / "bad", "--json")
    assert code != 0 and document["errors"][0]["kind"] == "checksum", (code, document, stderr)
    assert f"bit 0 of byte {begin}" in document["errors"][0]["message"]


def test_no_scale_is_ever_left_out(tmp_path):
    """A weight without its scale is no plain cast."""
    case = next(c for c in CASES if golden.config(c)["quantization_config"]["quant_method"] == "fp8")
    source = shutil.copytree(case / "ckpt", tmp_path / "hf")
    for file in source.glob("*.safetensors"):
        with safetensors.safe_open(file, "pt") as f:
            tensors = {k: f.get_tensor(k) for k in f.keys() if not k.endswith("gate_proj.weight_scale_inv")}
        safetensors.torch.save_file(tensors, file, {"format": "pt"})
    (source / "model.safetensors.index.json").unlink()
    code, document, stderr = tools.run("ckpt-convert", "hf-to-fsdp", source, tmp_path / "out", "--json")
    assert code == 3, stderr
    lost = [k for k in golden.account(case)["dequantised"] if k.endswith("gate_proj.weight")]
    assert sorted(e["tensor"] for e in document["errors"]) == sorted(lost)
    assert {e["kind"] for e in document["errors"]} == {"missing"}
