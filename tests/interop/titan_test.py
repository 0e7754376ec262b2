"""DCP under Hugging Face names, as a program like torchtitan has it: the model's state at the top, everything else under a word of its own."""
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

import golden
import tools

MODEL = next(c / "ckpt" for c in golden.models() if c.name == "llama-untied-bf16")


def weights():
    return {key: value for path in sorted(MODEL.glob("*.safetensors")) for key, value in safetensors.torch.load_file(path).items()}


def flat_optimizer(state):
    """As torchtitan's get_flat_optim_state_dict names it."""
    flat = {}
    for key, value in state.items():
        flat[f"state.{key}.step"] = torch.tensor(3.0)
        flat[f"state.{key}.exp_avg"] = torch.randn(value.shape)
        flat[f"state.{key}.exp_avg_sq"] = torch.rand(value.shape)
        flat |= {f"param_groups.{key}.{name}": setting
                 for name, setting in dict(lr=0.5, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1, amsgrad=False).items()}
    return flat


def test_what_it_saves_becomes_a_repository(tmp_path):
    state = weights()
    dcp.save({**state, "optimizer": flat_optimizer(state), "lr_scheduler": {"last_epoch": 3}, "train_state": {"step": torch.tensor(3)}},
             checkpoint_id=str(tmp_path / "step-3"), no_dist=True)
    report = tools.convert("convert", tmp_path / "step-3", tmp_path / "hf", "--to", "hf", "--hf-assets", MODEL)
    assert tools.digests(tmp_path / "hf") == tools.digests(MODEL)
    assert any(entry["key"].startswith("optimizer.state.") for entry in report["dropped"])


def test_it_loads_what_we_write(tmp_path):
    tools.convert("convert", MODEL, tmp_path / "dcp", "--to", "dcp", "--naming", "hf")
    want = weights()
    got = {key: torch.zeros_like(value) for key, value in want.items()}
    dcp.load(got, checkpoint_id=str(tmp_path / "dcp"), no_dist=True)
    assert all(torch.equal(got[key], value) for key, value in want.items())
    tools.convert("convert", tmp_path / "dcp", tmp_path / "back", "--to", "hf")
    assert tools.digests(tmp_path / "back") == tools.digests(MODEL)
