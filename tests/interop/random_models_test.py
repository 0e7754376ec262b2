"""Random models, each written by any of our writers with random options, load in real PyTorch and safetensors."""
import collections
import json
import os
import subprocess

from tools import BIN, peer

COUNT = 120
SEED = int(os.environ.get("CKPT_TEST_SEED", 20240229))


def test_every_value_arrives(tmp_path):
    print(f"CKPT_TEST_SEED={SEED}")
    subprocess.run([BIN / "dump-random-models", tmp_path, str(COUNT), str(SEED)], check=True, capture_output=True)
    account = json.loads((tmp_path / "account.json").read_text())
    containers = collections.Counter(entry["container"] for entry in account)
    assert len(account) == COUNT and set(containers) == {"dcp", "safetensors", "torch_save"}
    loaded = peer("2.15.0", "random_models.py", tmp_path)
    for entry in account:
        assert loaded[entry["path"]] == entry["tensors"], entry["path"]
