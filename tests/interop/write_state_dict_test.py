"""A state dict of every dtype, written by a program over the library, loads in real PyTorch."""
import json
import subprocess

import pytest

from tools import BIN, peer

IN_TORCH_2_4 = {"bfloat16", "bool", "complex128", "complex32", "complex64", "float16", "float32", "float64", "float8_e4m3fn",
                "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int16", "int32", "int64", "int8", "uint8"}
# What each torch can save through DCP (golden cases dcp/dtypes_t24 and dcp/dtypes).
DTYPES = {"2.4.1": IN_TORCH_2_4,
          "2.15.0": IN_TORCH_2_4 | {"bcomplex32", "float4_e2m1fn_x2", "float8_e8m0fnu", "uint16", "uint32", "uint64"}}


@pytest.mark.parametrize("torch_version", sorted(DTYPES))
def test_every_dtype_loads(torch_version, tmp_path):
    folder, account = tmp_path / "ckpt", tmp_path / "expected.json"
    dtypes = ",".join(sorted(DTYPES[torch_version]))
    subprocess.run([BIN / "example-write-state-dict", folder, account, dtypes], check=True, capture_output=True)
    expected = json.loads(account.read_text())["tensors"]
    assert {t["dtype"] for t in expected.values()} == DTYPES[torch_version]
    loaded = peer(torch_version, "dcp_load.py", "plain", folder)["tensors"]
    assert loaded == {k: {f: t[f] for f in ("shape", "dtype", "sha256")} for k, t in expected.items()}
