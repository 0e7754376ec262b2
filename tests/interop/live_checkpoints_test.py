"""Checkpoints made here and now by real software, other shapes and names than the goldens, read by ckpt-inspect."""
import json
import os

import pytest

import tools

SEED = int(os.environ.get("CKPT_TEST_SEED", "1"))
COMMON = ["nested", "safetensors", "sharded", "torch_save_legacy", "torch_save_zip", "writer_per_item", "writer_threads"]
CASES = {"2.15.0": sorted(COMMON + ["hugging_face_writer", "zstd"]), "2.4.1": COMMON}
EVERY = [(version, case) for version, cases in sorted(CASES.items()) for case in cases]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """torch version -> folder of its cases."""
    folders = {}
    for version, cases in CASES.items():
        folders[version] = tmp_path_factory.mktemp("live")
        assert tools.peer(version, "torch_make.py", folders[version], SEED) == cases
    return folders


@pytest.fixture(params=EVERY, ids=lambda p: f"{p[0]}-{p[1]}")
def checkpoint(request, made):
    """(path, account) of one case."""
    print(f"replay: CKPT_TEST_SEED={SEED}")
    version, case = request.param
    folder = made[version] / case
    account = json.loads((folder / "expected.json").read_text())
    return folder / account["path"], account


def test_tensors(checkpoint):
    path, account = checkpoint
    assert tools.described(path) == {k: (t["shape"], t["dtype"], t["sha256"]) for k, t in account["tensors"].items()}


def test_objects(checkpoint):
    path, account = checkpoint
    if not account["objects"]:
        return
    assert tools.inspect("meta", path)["objects"] == account["objects"]


def test_verify(checkpoint):
    assert tools.inspect("verify", checkpoint[0])["ok"]
