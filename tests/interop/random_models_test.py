"""Random models, each written by any of our writers with random options, load in real PyTorch, safetensors and h5py."""
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
    assert len(account) == COUNT and set(containers) == {"dcp", "hdf5", "safetensors", "torch_save"}
    loaded = peer("2.15.0", "random_models.py", tmp_path)
    hdf5 = {entry["path"]: tmp_path / entry["path"] for entry in account if entry["container"] == "hdf5"}
    read = peer("hdf5", "hdf5_read.py", *hdf5.values())
    loaded |= {path: read[str(file)]["tensors"] for path, file in hdf5.items()}
    for entry in account:
        assert loaded[entry["path"]] == entry["tensors"], entry["path"]
