"""Real Megatron-FSDP, over gloo, loads what our ranks saved, saves it again, and our ranks go on from that: tests/gpu/megatron_fsdp.py."""
import os
import subprocess

import packages
import tools


def test_loads_and_saves_what_our_ranks_saved(tmp_path):
    site = os.pathsep.join(map(str, (packages.megatron_core("0.19.0"), packages.installed("einops==0.8.2"))))
    done = subprocess.run(
        [tools.PYTHONS["2.15.0"], "-W", "ignore", tools.ROOT / "tests/gpu/megatron_fsdp.py", "--bin", tools.BIN, "--device", "cpu", "--work", tmp_path / "work",
         "--only", "dense", "--only", "experts_divided"],
        capture_output=True, text=True, timeout=1200, env=os.environ | {"PYTHONPATH": site})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert done.stdout.count(" ok: ") == 5, done.stdout
    assert done.stdout.endswith("all equal\n")
