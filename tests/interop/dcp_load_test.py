"""What hf-to-fsdp writes, real PyTorch loads, value for value."""
import pytest

import golden
import mapping
import tools
from tools import TORCH, peer

MODELS = golden.models()
# Every family once; the others are loaded into plain tensors only.
ONE_PER_FAMILY = list({golden.account(c).get("family", c.name): c for c in MODELS}.values())


def expected(case):
    return mapping.described(mapping.megatron_tensors(*mapping.read_repository(case / "ckpt")))


@pytest.fixture(scope="module")
def loaded_plain(conversions):
    """(case, torch version) -> what dcp.load gives; one process for all models."""
    folders = {case: str(conversions.fsdp(case) / "release") for case in MODELS}
    done = {}

    def get(case, torch_version):
        if torch_version not in done:
            done[torch_version] = peer(torch_version, "dcp_load.py", "plain_each", *folders.values())
        return done[torch_version][folders[case]]

    return get


def without_rows(tensors):
    return {k: {f: v for f, v in t.items() if f != "rows"} for k, t in tensors.items()}


@pytest.mark.parametrize("torch_version", TORCH)
@pytest.mark.parametrize("case", MODELS, ids=golden.name)
def test_into_plain_tensors(case, torch_version, loaded_plain):
    loaded = loaded_plain(case, torch_version)
    assert loaded["tensors"] == expected(case)
    assert loaded["objects"]["iteration"] == 0
    assert loaded["objects"]["checkpoint_version"] == 3.0


@pytest.mark.parametrize("torch_version", TORCH)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_into_dtensors(ranks, torch_version, conversions):
    # 48 rows divide by every rank count here; vocabularies and head counts do not.
    case = next(c for c in MODELS if c.name == "qwen3moe-norm-bf16")
    loaded = peer(torch_version, "dcp_load.py", "dtensor", conversions.fsdp(case) / "release", ranks, 0)["tensors"]
    assert without_rows(loaded) == expected(case)
    if ranks == 3:
        assert any(len(set(t["rows"])) > 1 for t in loaded.values()), "no uneven tensor in this model"
        assert any(len(set(t["rows"])) == 1 for t in loaded.values() if t["rows"]), "no even tensor in this model"


@pytest.mark.parametrize("case", ONE_PER_FAMILY, ids=golden.name)
def test_into_dtensors_along_columns(case, conversions):
    loaded = peer("2.15.0", "dcp_load.py", "dtensor", conversions.fsdp(case) / "release", 2, 1)["tensors"]
    assert without_rows(loaded) == expected(case)


@pytest.mark.parametrize("torch_version", TORCH)
@pytest.mark.parametrize("files", [1, 3])
def test_whatever_the_number_of_files(files, torch_version, conversions):
    case = ONE_PER_FAMILY[0]
    folder = conversions.fsdp(case, "--files", str(files)) / "release"
    assert len(list(folder.glob("*.distcp"))) == files
    assert peer(torch_version, "dcp_load.py", "plain", folder)["tensors"] == expected(case)


# Stream extensions are younger than torch 2.4.
@pytest.mark.parametrize("level", ["zstd", "zstd:19"])
def test_compressed(level, conversions):
    folders = {case: str(conversions.fsdp(case, "--compress", level) / "release") for case in ONE_PER_FAMILY}
    loaded = peer("2.15.0", "dcp_load.py", "plain_each", *folders.values())
    for case, folder in folders.items():
        assert loaded[folder]["tensors"] == expected(case), case.name
        assert loaded[folder]["objects"]["iteration"] == 0
        chunks = tools.inspect("shards", folder)["chunks"]
        assert chunks and all(c["encoding"] == "torch_save+stream.zstd/1" for c in chunks), case.name


@pytest.mark.parametrize("torch_version", TORCH)
@pytest.mark.parametrize("case", ONE_PER_FAMILY, ids=golden.name)
def test_through_dcp_to_torch_save(case, torch_version, conversions, tmp_path):
    loaded = peer(torch_version, "dcp_load.py", "torch_save", conversions.fsdp(case) / "release", tmp_path / "model.pt")
    assert loaded["tensors"] == expected(case)


@pytest.mark.parametrize("torch_version", TORCH)
@pytest.mark.parametrize("case", ONE_PER_FAMILY, ids=golden.name)
def test_megatrons_strict_first_request(case, torch_version, conversions):
    config = mapping.read_repository(case / "ckpt")[1]
    folder = conversions.fsdp(case)
    answer = peer(torch_version, "dcp_load.py", "megatron", folder / "release")
    assert (folder / "latest_checkpointed_iteration.txt").read_text().strip() == "release"
    assert answer["args_type"] == "argparse.Namespace"
    assert answer["iteration"] == 0
    assert answer["checkpoint_version"] == 3.0
    assert answer["args"]["num_layers"] == config["num_hidden_layers"]
    assert answer["args"]["hidden_size"] == config["hidden_size"]
    assert answer["args"]["num_attention_heads"] == config["num_attention_heads"]
    # Latent attention has an option of its own for it.
    rope = golden.config(case).get("rope_scaling") or golden.config(case).get("rope_parameters") or {}
    is_yarn = rope.get("rope_type") == "yarn" and "kv_lora_rank" not in golden.config(case)
    assert answer["args"]["add_position_embedding"] is False or answer["args"]["position_embedding_type"] == ("yarn" if is_yarn else "rope")
