"""Tensors that are not plain entries of a state dict, as real torch saves them: none of their numbers is invisible."""
import pytest

import tools


@pytest.fixture(scope="module", params=tools.TORCH)
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    return folder, tools.peer(request.param, "odd_tensors.py", folder)


def warnings_of(path):
    return {p["tensor"]: p for p in tools.inspect("tensors", path)["problems"] if p["severity"] == "warning"}


def held(path, key):
    return {name: tensor["sha256"] for name, tensor in tools.inspect("show", path, key)["tensors"].items()}


def test_a_distributed_tensor_that_is_all_there_is_a_tensor(written):
    folder, sums = written
    assert tools.digests(folder / "one_rank.pt") == {"w": sums["whole"], "p": sums["plus1"]}
    assert warnings_of(folder / "one_rank.pt") == {}


def test_the_part_of_one_rank_is_an_object_that_says_so(written):
    folder, sums = written
    path = folder / "two_ranks.pt"
    assert tools.digests(path) == {"replica": sums["pair"]}
    warnings = warnings_of(path)
    assert set(warnings) == {"shard", "summand"}
    assert "(4, 4)" in warnings["shard"]["expected"] and "DTensor" in warnings["shard"]["actual"]
    assert held(path, "shard") == {"": sums["half"]}
    assert held(path, "summand") == {"": sums["pair"]}


def test_tensors_in_objects_are_shown_by_digest(written):
    folder, sums = written
    assert tools.digests(folder / "sparse.pt") == {"w": sums["whole"]}
    assert set(held(folder / "sparse.pt", "s").values()) == {sums["indices"], sums["values"]}
    assert held(folder / "dataclass.pt", "state") == {"weight": sums["whole"]}
    assert held(folder / "root.pt", "") == {"weight": sums["whole"]}
    assert set(held(folder / "storage.pt", "storage").values()) == {sums["whole"]}
    assert tools.inspect("meta", folder / "root.pt")["held"] == {"": {"tensors": {
        "weight": {"shape": [3, 4], "dtype": "float32", "sha256": sums["whole"]}}}}
    for name, key in {"sparse": "s", "dataclass": "state", "root": None}.items():
        assert set(warnings_of(folder / f"{name}.pt")) == {key}
        assert tools.inspect("verify", folder / f"{name}.pt")["ok"]


def test_tensors_of_a_librarys_own_class_are_refused_by_its_name(written, tmp_path):
    folder, sums = written
    assert "Packed" in warnings_of(folder / "packed.pt")["packed"]["actual"]
    for target in ("dcp", "safetensors", "torch_save"):
        left, = tools.convert("convert", folder / "packed.pt", tmp_path / f"of-file-{target}", "--to", target)["dropped"]
        assert left["key"] == "packed" and left["bytes"] == 12 + 3 * 4
    # In DCP `.metadata` has them as tensors like others: only the item tells.
    for command in (("ckpt-inspect", "verify", folder / "packed"), ("ckpt-convert", "convert", folder / "packed", tmp_path / "out", "--to", "dcp")):
        code, document, _ = tools.run(*command, "--json")
        error, = document["problems" if "verify" in command else "errors"]
        assert code == 3 and error["kind"] == "unsupported" and error["tensor"] == "packed" and "Packed" in error["actual"], document
    assert not (tmp_path / "out").exists()
    # Nothing is damaged, and `verify` does not say so.
    code, document, _ = tools.run("ckpt-inspect", "verify", folder / "packed", "--json")
    assert code == 3 and document["not_understood"] == ["packed"]
    tools.convert("convert", folder / "packed", tmp_path / "rest", "--to", "dcp", "--drop", "packed")
    assert tools.digests(tmp_path / "rest") == {"w": sums["whole"]}


def test_a_weight_that_is_gathered_in_float8_is_the_weight(written, tmp_path):
    folder, sums = written
    assert tools.digests(folder / "float8.pt") == {"w": sums["whole"], "d": sums["plus1"]}
    warning = warnings_of(folder / "float8.pt")["w"]
    assert "class torchao.float8.fsdp_utils.WeightWithDynamicFloat8CastTensor" in warning["actual"] and "1 tensor more" in warning["actual"]
    # As each rank's items of DCP are.
    assert tools.digests(folder / "float8") == {"w": sums["whole"]}
    tools.convert("convert", folder / "float8", tmp_path / "out", "--to", "safetensors")
    assert tools.digests(tmp_path / "out") == {"w": sums["whole"]}


@pytest.mark.parametrize("name,options,refusal", [
    ("root", [], (3, "not_found")),
    ("dataclass", ["--match", "state*"], (2, "usage")),
    ("sparse", ["--match", "nothing"], (2, "usage")),
])
def test_a_digest_of_no_tensor_is_refused(name, options, refusal, written):
    code, document, _ = tools.run("ckpt-inspect", "digest", written[0] / f"{name}.pt", *options, "--json")
    assert (code, document["errors"][0]["kind"]) == refusal, document


def test_paths_that_are_the_same_text_are_told_apart(written):
    folder, sums = written
    assert tools.digests(folder / "names.pt") == {"['a.b']": sums["whole"], "['a']['b']": sums["plus1"], "[1]": sums["plus2"],
                                                  "['1']": sums["plus3"], "x.y": sums["whole"]}
    assert tools.inspect("verify", folder / "names.pt")["ok"]


@pytest.mark.parametrize("name,word", [("script.pt", "TorchScript"), ("program.pt2", "torch.export")])
def test_archives_of_programs_are_called_what_they_are(name, word, written):
    for command in (("ckpt-inspect", "summary", written[0] / name), ("ckpt-convert", "hf-to-fsdp", written[0] / name, written[0] / "out")):
        code, document, _ = tools.run(*command, "--json")
        error, = document["errors"]
        assert code == 3 and error["kind"] == "unsupported" and word in error["message"], command
