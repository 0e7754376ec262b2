"""Loads a file of torch.save with weights_only and prints its tensors as JSON: key -> shape, dtype, sha256.

    torch_load.py FILE
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

import hashing

if __name__ == "__main__":
    print(json.dumps({key: hashing.describe(tensor) for key, tensor in torch.load(sys.argv[1], weights_only=True).items()}))
