"""Writes the goldens of Megatron's own ranks: make.py FOLDER, by the Python of `tools/dev/venv torch-2.15.0`, with ckpt-convert built.

A small Llama of random weights becomes torch_dist by ckpt-convert; real Megatron-Core 0.16.1 loads it on two tensor ranks and two
stages, and each rank stores what Megatron-LM stores. expected.json has the model as one rank stores it.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

import torch
import transformers

import hashing
import packages
import tools


def main(folder):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                                      vocab_size=8, max_position_embeddings=8, tie_word_embeddings=True)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        model.save_pretrained(scratch / "hf")
        tools.convert("hf-to-torch-dist", scratch / "hf", scratch / "core", "--transformer-impl", "local")
        for sizes in ("1,1,1,1", "2,2,1,1"):
            subprocess.run([sys.executable, ROOT / "tests/interop/peers/mp_rank_save.py", packages.megatron_core("0.16.1"),
                            scratch / "core" / "release", scratch / sizes, sizes, "--sequential"],
                           check=True)
        whole = torch.load(scratch / "1,1,1,1/iter_0000007/mp_rank_00/model_optim_rng.pt", weights_only=False)["model"]
        shutil.copytree(scratch / "2,2,1,1/iter_0000007", folder / "tp2_pp2")
    tensors = {f"model.{key}": hashing.describe(value) for key, value in whole.items() if isinstance(value, torch.Tensor)}
    account = {"made_by": {"torch": torch.__version__, "megatron-core": "0.16.1"}, "tensors": tensors}
    (folder / "tp2_pp2.json").write_text(json.dumps(account, indent=1) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
