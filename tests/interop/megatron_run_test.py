"""Real Megatron-Core goes on from training runs of ours: its distributed optimizer takes every key and value, and saves the same."""
import pytest
import torch

import golden
import tools
from megatron_core_test import core  # noqa: F401, the fixture
from megatron_core_test import VERSIONS, stored
from megatron_keys_test import load_tensors

# Of layers without Transformer Engine, as the model is that loads them.
RUNS = [c for c in golden.cases("fsdp_dtensor") if c.name.startswith(("dense_", "moe_")) and "gelu" not in c.name]


def check(case, generation, core, tmp_path):
    ours, own = tmp_path / "ours", tmp_path / "own"
    tools.convert("fsdp-to-torch-dist", case / "ckpt", ours, "--transformer-impl", "local", "--dtype", "bfloat16",
                  "--torch-dist-generation", generation)
    (folder,) = ours.glob("iter_*")
    done = tools.peer("2.15.0", "megatron_core.py", core(VERSIONS[generation]), folder, tmp_path / "live.pt", own, "--sequential", timeout=120)
    assert done["iteration"] == int((ours / "latest_checkpointed_iteration.txt").read_text())
    assert stored(folder) == stored(own)
    want, got = load_tensors(folder), load_tensors(own)
    assert any(key.startswith("optimizer.state.exp_avg_sq.") for key in want)
    for key, value in want.items():
        if key.startswith("optimizer.state."):
            assert value.dtype == torch.float32
            assert torch.equal(got[key], value), key
        else:  # the weights that compute are rounded from the optimizer's
            main = want.get(f"optimizer.state.param.{key}", value)
            assert torch.equal(got[key], main.to(value.dtype)), key


@pytest.mark.parametrize("case", RUNS, ids=golden.name)
def test_takes_weights_optimizer_and_schedule(case, core, tmp_path):
    check(case, "compat", core, tmp_path)


@pytest.mark.parametrize("generation", VERSIONS)
def test_experts_with_an_optimizer_of_their_own(generation, core, tmp_path):
    """As with expert parallelism: two ranks share the experts, and each optimizer's state."""
    (case,) = [c for c in RUNS if c.name == "moe_sequential_ep2_fsdp4"]
    ours, own = tmp_path / "ours", tmp_path / "own"
    tools.convert("fsdp-to-torch-dist", case / "ckpt", ours, "--transformer-impl", "local", "--dtype", "bfloat16",
                  "--torch-dist-generation", generation, "--expert-optimizer", "separate")
    (folder,) = ours.glob("iter_*")
    done = tools.peer("2.15.0", "megatron_core.py", core(VERSIONS[generation]), folder, tmp_path / "live.pt", own, "--sequential",
                      "--expert-ranks", 2, timeout=180)
    assert done["optimizers"] == 2
    assert stored(folder) == stored(own)
    want, got = load_tensors(folder), load_tensors(own)
    for key, value in want.items():
        main = want.get(f"optimizer.state.param.{key}", value)
        assert torch.equal(got[key], main.to(value.dtype)), key
    # And back: experts are in groups of their own no longer.
    tools.convert("torch-dist-to-fsdp", ours, tmp_path / "back")
    tools.convert("fsdp-to-torch-dist", tmp_path / "back", tmp_path / "again", "--transformer-impl", "local", "--dtype", "bfloat16")
    assert tools.digests(tmp_path / "again") == tools.digests(ours)


@pytest.mark.parametrize("case", [c for c in RUNS if c.name in ("dense_tied_fsdp4", "moe_ep2_fsdp4")], ids=golden.name)
def test_the_newer_version_does_too(case, core, tmp_path):
    check(case, "0.19", core, tmp_path)
