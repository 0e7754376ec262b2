"""The benchmarks still run, and hold on small inputs what does not depend on the machine."""
import json
import re
import subprocess
import sys

import pytest

import tools

BENCH = tools.ROOT / "tests" / "bench"


def bench(name, *arguments):
    command = [sys.executable, BENCH / f"bench_{name}.py", "--bin", tools.BIN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(tools.are_sanitized(), reason="a sanitizer's memory is not the program's")
def test_convert_stays_in_its_memory_budget(tmp_path):
    result = bench("convert", "--gb", "0.6", "--runs", "1", "--work", tmp_path)
    assert result["peak_rss_bytes"] <= result["peak_rss_limit_bytes"]


def test_compress(tmp_path):
    result = bench("compress", "--gb", "0.02", "--runs", "1", "--work", tmp_path)
    assert result["compressed"]["ours"] < result["bytes"] and result["compressed"]["zstd"] < result["bytes"]


def test_quantised(tmp_path):
    result = bench("quantised", "--gb", "0.05", "--runs", "1", "--work", tmp_path)
    assert result["stored_bytes"]["fp8"] < 0.7 * result["written_bytes"] and set(result["decode"]) == {"fp8_blocks", "mxfp4"}


def test_metadata(tmp_path):
    result = bench("metadata", "--tensors", "1000", "--chunks", "50", "--files", "10", "--runs", "1", "--work", tmp_path)
    assert result["chunks"] == 50_000
    assert set(result["seconds"]) == {"ours", "read_metadata", "read_bytes"}


def test_load(tmp_path):
    result = bench("load", "--gb", "0.05", "--runs", "1", "--work", tmp_path)
    for name in ("fsdp_dtensor", "hf"):
        assert set(result[name]["warm"]["gb_per_second"]) == {"verified", "unverified", result[name]["peer"], "read"}


def test_save(tmp_path):
    result = bench("save", "--hidden-size", "64", "--saves", "2", "--runs", "1", "--work", tmp_path)
    assert {side: len(some) for side, some in result["seconds"].items()} == {"ours": 2, "dcp.save": 2, "dcp.save, threads": 2, "write": 1}


def test_reshard(tmp_path):
    result = bench("reshard", "--hidden-size", "64", "--ranks", "2", "--runs", "1", "--work", tmp_path)
    assert {side: len(some) for side, some in result["seconds"].items()} == {"ours": 1, "ours, processes": 1, "dcp.load": 1, "read": 1}
    assert result["read"]["ours"] >= 1 and result["read"]["ours, processes"] >= 1


def test_diff(tmp_path):
    result = bench("diff", "--gb", "0.05", "--runs", "1", "--work", tmp_path)
    assert set(result["cases"]) == {"equal", "different", "names", "torch_dist", "dcp", "transposed"}


def test_plan(tmp_path):
    result = bench("plan", "--layers", "5", "--ranks", "256", "--ep", "8", "--runs", "1", "--work", tmp_path)
    for one in result["checkpoints"].values():
        assert set(one["seconds"]) == {"summary", "tensors", "plan", "html"}
    assert set(result["checkpoints"]) == {"hf", "dcp"}


def test_hdf5(tmp_path):
    command = [tools.PYTHONS["hdf5"], BENCH / "bench_hdf5.py", "--bin", tools.BIN, "--mb", "32", "--runs", "1", "--work", tmp_path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["target_bytes"]["link"] < 100_000 and len(result["seconds"]) == 12


def test_collectives():
    command = [tools.BIN / "collective_speed", "--device", "cpu", "--ranks", "2", "--mebibytes", "1", "2", "--product", "64", "--calls", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ranks"] == 2 and [size["bytes"] for size in result["sizes"]] == [1 << 20, 2 << 20]
    assert all(figure > 0 for size in result["sizes"] for figure in size.values())


def test_startup():
    result = bench("startup", tools.ROOT / "tests" / "golden" / "dcp" / "nested" / "ckpt", "--runs", "3")
    for side in (result, result["floor"]):
        assert {"process_ms", "wall_ms"} <= set(side)


def test_training():
    (result,) = bench("training", "--models", "tiny", "--shapes", "4x8:bf16", "--rounds", "1", "--steps", "2", "--threads", "1")
    assert set(result["tokens_per_second"]) == {"ours", "eager", "fused", "compiled", "ranks2", "ranks4"}
    assert result["ceiling_gflops"] > 0 and result["ledger"]["lines"]


def test_async_save(tmp_path):
    command = [sys.executable, BENCH / "report_async_save", tmp_path / "out.md", "--bin", tools.BIN, "--dir", tmp_path, "--ranks", "1",
               "--steps", "12", "--interval", "3", "--hidden-size", "64"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (?!\|)(.+) \| [\d., ]+ \|$", (tmp_path / "out.md").read_text(), re.M)
    assert len(rows) == 11 and any("async_save" in row for row in rows), rows


def test_cast():
    result = bench("cast", "--elements", "100000", "--rounds", "1", "--runs", "1")
    assert len(result["pairs"]) == 12
    for pair in result["pairs"].values():
        assert set(pair["gb_per_second"]) == {"ours", "torch", "copy"}
