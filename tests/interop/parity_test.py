"""Parity files are in nobody's way: PyTorch and Transformers load what lies beside them, and what was repaired by them."""
import shutil

import pytest
import torch

import golden
import mapping
import tools
import transformers_run
from tools import peer

CASE = next(c for c in golden.models() if c.name == "qwen3moe-norm-bf16")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(fsdp, hf), both with parity."""
    folder = tmp_path_factory.mktemp("parity")
    fsdp = tools.convert("hf-to-fsdp", CASE / "ckpt", folder / "fsdp", "--files", 4, "--parity", 3)
    assert fsdp["parity"]["files"] == len(list((folder / "fsdp" / "release").glob("ckptkit-parity-*.xor"))) > 0
    tools.convert("fsdp-to-hf", folder / "fsdp", folder / "hf", "--parity", 2)
    return folder / "fsdp", folder / "hf"


def damaged(source, target, name):
    """A copy without one file, and with a flipped bit in another one."""
    shutil.copytree(source, target)
    lost = target / name
    lost.unlink()
    other = max((p for p in lost.parent.iterdir() if p.suffix == ".xor"), key=lambda p: p.stat().st_size)
    content = bytearray(other.read_bytes())
    content[len(content) // 2] ^= 0x10
    other.write_bytes(content)
    repaired = target.with_name(target.name + "-repaired")
    assert {place["file"] for place in tools.run_ok("ckpt-inspect", "repair", target, "-o", repaired)["repaired"]} \
        == {lost.name, other.name}
    return repaired


@pytest.mark.parametrize("torch_version", tools.TORCH)
@pytest.mark.parametrize("lost", [None, "release/.metadata", "release/__0_1.distcp"])
def test_dcp_load(written, lost, torch_version, tmp_path):
    folder = written[0] if lost is None else damaged(written[0], tmp_path / "damaged", lost)
    loaded = peer(torch_version, "dcp_load.py", "plain_each", folder / "release")[str(folder / "release")]
    assert loaded["tensors"] == mapping.described(mapping.megatron_tensors(*mapping.read_repository(CASE / "ckpt")))


@pytest.mark.parametrize("lost", [None, "config.json"])
def test_transformers(written, lost, tmp_path):
    folder = written[1] if lost is None else damaged(written[1], tmp_path / "damaged", lost)
    reference = transformers_run.reference(CASE)
    source = transformers_run.logits(CASE / "ckpt", reference["input_ids"])
    assert torch.equal(transformers_run.logits(folder, reference["input_ids"]), source)
