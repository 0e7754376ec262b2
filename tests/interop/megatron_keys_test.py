"""The keys are Megatron-FSDP's, shown from both sides: against Megatron-Bridge's names, and on what Megatron-FSDP wrote."""
import json

import pytest

import golden
import hashing
import tools
import torch
import transformers_run
from torch.distributed.checkpoint import FileSystemReader, load
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

PREFIX = "model.module."
WITH_BRIDGE = [c for c in golden.models() if (c / "megatron.json").exists()]
MEGATRON = golden.megatron_dense_swiglu()


def load_tensors(folder):
    """All tensors of a DCP folder, by real PyTorch."""
    state = {k: torch.empty(m.size, dtype=m.properties.dtype)
             for k, m in FileSystemReader(folder).read_metadata().state_dict_metadata.items()
             if isinstance(m, TensorStorageMetadata)}
    load(state, checkpoint_id=str(folder))
    return state


@pytest.mark.parametrize("case", WITH_BRIDGE, ids=golden.name)
def test_every_tensor_of_megatron_bridge(case, conversions):
    ours = load_tensors(conversions.fsdp(case) / "release")
    account = json.loads((case / "megatron.json").read_text())
    covered = set()
    for name, want in account["tensors"].items():
        key = PREFIX + name
        # fc1 is fused in the account; on disk it is `_w` (gate) and `_v` (up).
        keys = [key] if key in ours else [key + "_w", key + "_v"]
        assert all(k in ours for k in keys), f"{key} is not there"
        got = hashing.describe(torch.cat([ours[k] for k in keys]))
        assert got == {f: want[f] for f in ("shape", "dtype", "sha256")}, key
        covered |= set(keys)
    if account["complete"]:
        assert covered == set(ours), "tensors that Megatron-Bridge does not have"


def flag(case, name, default=None):
    flags = golden.account(case)["flags"]
    return flags[flags.index(name) + 1] if name in flags else default


def write_llama_config(case, folder):
    """The published description of the model that Megatron's flags ask for."""
    heads, hidden = int(flag(case, "--num-attention-heads")), int(flag(case, "--hidden-size"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": int(flag(case, "--ffn-hidden-size")),
        "num_hidden_layers": int(flag(case, "--num-layers")), "num_attention_heads": heads,
        "num_key_value_heads": int(flag(case, "--num-query-groups", heads)), "head_dim": hidden // heads,
        "max_position_embeddings": int(flag(case, "--max-position-embeddings")), "vocab_size": int(flag(case, "--vocab-size")),
        "rms_norm_eps": float(flag(case, "--norm-epsilon", 1e-5)), "rope_theta": float(flag(case, "--rotary-base", 10000)),
        "tie_word_embeddings": "--untie-embeddings-and-output-weights" not in golden.account(case)["flags"],
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Case -> the Hugging Face repository made of it."""
    done = {}

    def get(case):
        if case not in done:
            folder = tmp_path_factory.mktemp("megatron")
            assets = write_llama_config(case, folder / "assets")
            tools.convert("fsdp-to-hf", case / "ckpt", folder / "hf", "--hf-assets", assets)
            done[case] = folder / "hf"
        return done[case]

    return get


@pytest.mark.parametrize("case", MEGATRON, ids=golden.name)
def test_what_megatron_fsdp_wrote_has_its_loss_in_transformers(case, exported):
    step = golden.account(case)["continuation"][0]
    loss = transformers_run.mean_loss(exported(case), step["tokens"])
    assert abs(loss - step["lm_loss"]) <= 1e-4 * step["lm_loss"], (loss, step["lm_loss"])


@pytest.mark.parametrize("case", MEGATRON, ids=golden.name)
def test_what_megatron_fsdp_wrote_comes_back(case, exported, tmp_path):
    tools.convert("hf-to-fsdp", exported(case), tmp_path / "fsdp", "--transformer-impl", "local")
    fields = lambda t: {f: t[f] for f in ("shape", "dtype", "sha256")}
    want = {k: fields(t) for k, t in golden.account(case)["tensors"].items() if k.startswith(PREFIX)}
    got = {k: hashing.describe(t) for k, t in load_tensors(tmp_path / "fsdp" / "release").items()}
    assert got == want
