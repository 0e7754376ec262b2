"""compare_with_source.py FOLDER MODEL: dcp.load of FOLDER against the safetensors of MODEL, under Megatron's names."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

import dcp_load
import mapping

loaded = dcp_load.plain(sys.argv[1])["tensors"]
expected = mapping.described(mapping.megatron_tensors(*mapping.read_repository(pathlib.Path(sys.argv[2]))))
if loaded != expected:
    sys.exit(f"torch {torch.__version__}: differs in {sorted(k for k in loaded | expected if loaded.get(k) != expected.get(k))[:5]}")
print(f"torch {torch.__version__}: {len(loaded)} tensors loaded, all equal")
