"""Loads checkpoints with PyTorch and safetensors and prints what came out: path -> key -> shape, dtype, sha256.

    random_models.py DIR    the checkpoints that DIR/account.json lists, but for those in HDF5, which h5py reads
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from safetensors.torch import load_file

import hashing
from dcp_load import plain


def load(container, path):
    if container == "dcp":
        return plain(str(path))["tensors"]
    if container == "torch_save":
        return {k: hashing.describe(v) for k, v in torch.load(path, weights_only=True).items()}
    files = sorted(path.glob("*.safetensors"))
    return {k: hashing.describe(v) for file in files for k, v in load_file(file).items()}


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    account = json.loads((folder / "account.json").read_text())
    print(json.dumps({entry["path"]: load(entry["container"], folder / entry["path"]) for entry in account
                      if entry["container"] != "hdf5"}))
