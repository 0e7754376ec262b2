"""One file as torch.save writes it: torch.load takes it with weights_only, Python's zipfile finds every checksum right."""
import zipfile

import pytest
import torch
import transformers

import golden
import tools

CASES = ("dcp/dtypes", "dcp/shapes", "dcp/many_keys", "dcp/mesh_2d", "fsdp_dtensor/dense_fsdp2", "hf/llama-tied-fp32")
# Types that torch 2.4 lacks.
NEW_DTYPES = {"float4_e2m1fn_x2", "float8_e8m0fnu"}


def source_of(name):
    case = golden.root() / name
    return case / golden.account(case).get("path", "ckpt")


def loaded(environment, path):
    return tools.peer(environment, "torch_load.py", path)


@pytest.mark.parametrize("name", CASES)
def test_torch_loads_every_value(name, tmp_path):
    source = source_of(name)
    report = tools.convert("convert", source, tmp_path / "out.pt", "--to", "torch_save")
    expected = {key: {"shape": shape, "dtype": dtype, "sha256": sha} for key, (shape, dtype, sha) in tools.described(source).items()}
    assert loaded("2.15.0", tmp_path / "out.pt") == expected
    if not any(tensor["dtype"] in NEW_DTYPES for tensor in expected.values()):
        assert loaded("2.4.1", tmp_path / "out.pt") == expected
    with zipfile.ZipFile(tmp_path / "out.pt") as archive:
        assert archive.testzip() is None
    assert report["digest"]["source"] == report["digest"]["target"]
    assert tools.inspect("digest", tmp_path / "out.pt")["checkpoint"] == tools.inspect("digest", source)["checkpoint"]
    assert tools.inspect("verify", tmp_path / "out.pt")["protection"] == "crc32"
    objects = {o["key"] for o in tools.inspect("tensors", source)["objects"]}
    assert objects <= {entry["key"] for entry in report["dropped"]}


@pytest.mark.parametrize("name", ["dcp/mesh_2d", "dcp/fsdp2_tp"])
def test_it_has_the_tensors_of_torchs_own_conversion(name, tmp_path):
    source = source_of(name)
    theirs = tools.peer("2.15.0", "dcp_load.py", "torch_save", source, tmp_path / "theirs.pt")["tensors"]
    tools.convert("dcp-to-torch", source, tmp_path / "ours.pt")
    assert loaded("2.15.0", tmp_path / "ours.pt") == theirs
    tools.convert("torch-to-dcp", tmp_path / "ours.pt", tmp_path / "back", "--files", "3")
    assert tools.peer("2.15.0", "dcp_load.py", "plain", tmp_path / "back")["tensors"] == theirs


def test_torch_maps_it(tmp_path):
    tools.convert("convert", source_of("dcp/shapes"), tmp_path / "out.pt", "--to", "torch_save")
    mapped = torch.load(tmp_path / "out.pt", weights_only=True, mmap=True)
    for key, tensor in torch.load(tmp_path / "out.pt", weights_only=True).items():
        assert torch.equal(mapped[key], tensor), key


def test_transformers_loads_it_as_pytorch_model_bin(tmp_path):
    source = source_of("hf/llama-untied-bf16")
    folder = tmp_path / "repository"
    folder.mkdir()
    tools.convert("convert", source, folder / "pytorch_model.bin", "--to", "torch_save")
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="auto").state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_a_flipped_bit_is_found_by_zipfile_and_by_us(tmp_path):
    tools.convert("convert", source_of("dcp/shapes"), tmp_path / "out.pt", "--to", "torch_save")
    key, chunk = next((c["key"], c) for c in tools.inspect("shards", tmp_path / "out.pt")["chunks"] if c["length"] > 8)
    content = bytearray((tmp_path / "out.pt").read_bytes())
    content[chunk["offset"] + 5] ^= 4
    (tmp_path / "out.pt").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "out.pt") as archive:
        assert archive.testzip() is not None
    code, document, _ = tools.run("ckpt-inspect", "verify", tmp_path / "out.pt", "--json")
    assert code == 1 and [problem["tensor"] for problem in document["problems"]] == [key]


def test_memory_is_bounded(tmp_path):
    torch.save({f"w{i}": torch.randn(4096, 4096) for i in range(8)}, tmp_path / "in.pt")
    report = tools.convert("convert", tmp_path / "in.pt", tmp_path / "out.pt", "--to", "torch_save", "--memory-budget", "16MiB")
    if not tools.are_sanitized():
        assert report["peak_rss"] < 200 << 20
    again = torch.load(tmp_path / "out.pt", weights_only=True, mmap=True)
    for key, tensor in torch.load(tmp_path / "in.pt", weights_only=True, mmap=True).items():
        assert torch.equal(again[key], tensor)


@pytest.mark.parametrize("option", [("--compress", "zstd"), ("--files", "2"), ("--max-shard-size", "1MiB"), ("--parity", "2")])
def test_what_one_file_cannot_be_is_refused(option, tmp_path):
    code, document, _ = tools.run("ckpt-convert", "convert", source_of("dcp/shapes"), tmp_path / "out.pt", "--to", "torch_save", *option,
                                  "--json")
    assert code == 2 and document["errors"][0]["kind"] == "usage" and not (tmp_path / "out.pt").exists()
