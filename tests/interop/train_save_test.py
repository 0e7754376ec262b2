"""What ckpt-train saves of a run, real PyTorch loads: weights, optimizer, everything around them."""
import json
import random

import pytest

import golden
import tools
from tools import TORCH, peer

STEPS = 3
MESHES = {
    "fsdp+ep": {"ranks": 4, "expert_model_parallel_size": 2},
    "hsdp+ep": {"ranks": 4, "expert_model_parallel_size": 2, "num_distributed_optimizer_instances": 2},
    "hfsdp-async": {"ranks": 4, "num_distributed_optimizer_instances": 2, "outer_dp_sharding_strategy": "optim",
                     "async_save": "true"},
    "uneven-shards": {"ranks": 3, "global_batch_size": 3},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tokens.jsonl"
    draw = random.Random(5)
    documents = [[draw.randrange(100) for _ in range(60)] for _ in range(40)]
    path.write_text("".join(json.dumps({"input_ids": d}) + "\n" for d in documents))
    return path


def train(model, data, root, mesh):
    settings = {"seq_length": 16, "global_batch_size": 4, "micro_batch_size": 1, "lr": 0.001, "train_iters": STEPS,
                "data_path": data, "save": root} | MESHES[mesh]
    words = [word for name, value in settings.items() if name != "ranks" for word in ("--set", f"{name}={value}")]
    code, _, stderr = tools.run("ckpt-train", "--init", f"hf:{model}", "--ranks", settings["ranks"], *words)
    assert code == 0, stderr
    assert (root / "latest_checkpointed_iteration.txt").read_text() == str(STEPS)
    return root / f"iter_{STEPS:07}"


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    """Mesh -> the checkpoint of a run that began with a Hugging Face model."""
    model = next(c for c in golden.models() if c.name == "qwen3moe-norm-bf16") / "ckpt"
    root = tmp_path_factory.mktemp("runs")
    return {mesh: train(model, data, root / mesh, mesh) for mesh in MESHES}


@pytest.fixture(scope="module", params=TORCH)
def loaded(request, saved):
    """Mesh -> what dcp.load gives; one process for all."""
    of_folder = peer(request.param, "dcp_load.py", "plain_each", *saved.values())
    return {mesh: of_folder[str(folder)] for mesh, folder in saved.items()}


@pytest.mark.parametrize("mesh", MESHES)
def test_every_tensor_is_what_we_read(mesh, saved, loaded):
    ours = {k: {"shape": s, "dtype": d, "sha256": h} for k, (s, d, h) in tools.described(saved[mesh]).items()}
    assert loaded[mesh]["tensors"] == ours
    moments = [k for k in ours if k.endswith(".exp_avg_sq")]
    weights = [k for k in ours if k.startswith("model.module.")]
    assert len(moments) == len(weights) > 0
    batch = MESHES[mesh].get("global_batch_size", 4)
    assert loaded[mesh]["objects"]["opt_param_scheduler.num_steps"] == STEPS * batch


@pytest.mark.parametrize("torch_version", TORCH)
def test_megatrons_strict_first_request(torch_version, saved):
    answer = peer(torch_version, "dcp_load.py", "megatron", saved["hsdp+ep"])
    assert answer["args_type"] == "argparse.Namespace"
    assert (answer["iteration"], answer["checkpoint_version"]) == (STEPS, 3.0)
    assert answer["args"]["num_layers"] == 2
    assert answer["args"]["consumed_train_samples"] == STEPS * answer["args"]["global_batch_size"]


def test_into_dtensors(saved):
    loaded = peer("2.15.0", "dcp_load.py", "dtensor", saved["uneven-shards"], 2, 0)["tensors"]
    assert {k: t["sha256"] for k, t in loaded.items()} == tools.digests(saved["uneven-shards"])


@pytest.mark.parametrize("mesh", MESHES)
def test_manifest_proves_every_byte(mesh, saved):
    report = tools.inspect("verify", saved[mesh])
    assert report["ok"] and report["protection"] == "manifest" and report["problems"] == []
