"""What Megatron-Core's older backend saves, a zarr array for each tensor, is read as the model that it saved."""
import pytest
import transformers

import golden
import packages
import tools
from megatron_run_test import with_experts_apart
from published_model import publish

SHAPE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4, vocab_size=128,
             max_position_embeddings=64)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "tied": lambda: transformers.Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True),
    "moe": lambda: transformers.Qwen3MoeConfig(**SHAPE, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                                               tie_word_embeddings=False),
}


def zarr_package():
    return packages.installed("zarr==2.18.7", "numcodecs==0.15.1", "fasteners==0.20", "tensorstore==0.1.86", "ml_dtypes==0.6.0",
                              "Deprecated==1.2.18", "wrapt==1.17.3")


def saved(source, ranks, out):
    return tools.megatron("0.15.3", "zarr_save.py", source, out, ranks, "--sequential", "--zarr", zarr_package())


# Of each model: tensor and expert ranks.
@pytest.mark.parametrize("name,ranks", [(name, f"{tensor},1") for name in CONFIGS for tensor in (1, 2, 4)]
                         + [("moe", ranks) for ranks in ("1,2", "1,4", "2,2")])
def test_the_arrays_are_the_model(name, ranks, tmp_path):
    publish(CONFIGS[name](), tmp_path)
    arrays = saved(tmp_path / "core" / "release", ranks, tmp_path / "zarr")["arrays"]
    assert tools.inspect("summary", tmp_path / "zarr")["format"] == "zarr"
    assert sorted(tools.digests(tmp_path / "zarr")) == arrays
    assert tools.inspect("verify", tmp_path / "zarr")["ok"]
    assert tools.inspect("digest", tmp_path / "zarr", "--as", "hf")["checkpoint"] \
        == tools.inspect("digest", tmp_path / "hf", "--as", "hf")["checkpoint"]
    tools.convert("convert", tmp_path / "zarr", tmp_path / "back", "--to", "hf", "--hf-assets", tmp_path / "hf")
    assert tools.digests(tmp_path / "back") == tools.digests(tmp_path / "hf")


@pytest.mark.parametrize("form", ("fully_reshardable", "fully_sharded_model_space"))
@pytest.mark.parametrize("name", ("dense_fsdp2", "moe_ep2_fsdp4"))
def test_the_arrays_of_a_run_are_the_run(name, form, tmp_path):
    """The optimizer's states come back too, also where ranks wrote slices of flattened parameters into the arrays."""
    (case,) = [c for c in golden.cases("fsdp_dtensor") if c.name == name]
    tools.convert("fsdp-to-torch-dist", with_experts_apart(case, tmp_path), tmp_path / "ours", "--transformer-impl", "local", "--dtype", "bfloat16",
                  "--optimizer-form", form)
    (folder,) = (tmp_path / "ours").glob("iter_*")
    tools.megatron("0.15.3", "megatron_core.py", folder, tmp_path / "live.pt", tmp_path / "zarr", "--sequential", "--zarr",
                   zarr_package())
    assert tools.inspect("summary", tmp_path / "zarr")["format"] == "zarr"
    assert not any(tmp_path.glob("zarr/*.distcp"))
    for saved_run in ("ours", "zarr"):
        tools.convert("torch-dist-to-fsdp", tmp_path / saved_run, tmp_path / f"back-{saved_run}", "--transformer-impl", "local")
    assert tools.digests(tmp_path / "back-zarr") == tools.digests(tmp_path / "back-ours")
    assert any("exp_avg_sq" in key for key in tools.digests(tmp_path / "back-zarr"))


def test_a_missing_chunk_is_named(tmp_path):
    publish(CONFIGS["llama"](), tmp_path)
    saved(tmp_path / "core" / "release", "2,1", tmp_path / "zarr")
    chunk = tmp_path / "zarr" / "output_layer.weight" / "1.0"
    chunk.unlink()
    code, document, _ = tools.run("ckpt-inspect", "verify", tmp_path / "zarr", "--json")
    errors = [problem for problem in document["problems"] if problem["severity"] == "error"]
    assert code == 1 and [(error["kind"], error["tensor"], error["file"]) for error in errors] \
        == [("missing_file", "output_layer.weight", str(chunk)), ("coverage", "output_layer.weight", None)]
