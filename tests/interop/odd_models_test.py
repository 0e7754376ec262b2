"""Models as they come: legal, rarely seen, and written by real Transformers."""
import json

import pytest
import safetensors.torch
import torch
import transformers

import tools
import transformers_run

SEQ, VOCAB = 12, 61


def common(**more):
    return {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 4, "max_position_embeddings": 64, "initializer_range": 0.2, **more}


def latent(**more):
    return common(q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=10, n_routed_experts=8,
                  num_experts_per_tok=3, moe_intermediate_size=20, first_k_dense_replace=1, n_group=2, topk_group=1, **more)


MODELS = {
    "latent-bias": ("DeepseekV3Config", latent(attention_bias=True)),
    "latent-mlp-bias": ("DeepseekV2Config", latent(mlp_bias=True, topk_method="group_limited_greedy")),
    "mlp-bias": ("LlamaConfig", common(mlp_bias=True)),
    "no-shared-expert": ("DeepseekV3Config", latent(n_shared_experts=0)),
    "bias-of-no-shared-expert": ("DeepseekV2Config", latent(n_shared_experts=0, mlp_bias=True, topk_method="group_limited_greedy")),
    "swish": ("Qwen2Config", common(hidden_act="swish")),
}
# And what names the reason why the trainer computes them not.
REFUSED = {"bias-of-no-shared-expert": "n_shared_experts is 0, and mlp_bias leaves a bias of them"}


def build(config_class, settings, dtype=torch.bfloat16):
    torch.manual_seed(11)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config_class)(**settings), dtype=torch.float32)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.uniform_(0.5, 1.5) if "norm" in key else parameter.normal_(0, 0.2)
    return model.to(dtype)


def stored(folder):
    return {key: value for path in sorted(folder.glob("*.safetensors")) for key, value in safetensors.torch.load_file(path).items()}


def same_tensors(folder, expected):
    found = stored(folder)
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert found[key].dtype == value.dtype and torch.equal(found[key], value), key


def loss_of_trainer(folder, model):
    tokens = [[(7 * row + 3 * i * i) % VOCAB for i in range(SEQ + 1)] for row in range(2)]
    data = folder / "tokens.jsonl"
    data.write_text("".join(json.dumps({"input_ids": row, "labels": row}) + "\n" for row in tokens))
    settings = {"valid_data_path": data, "seq_length": SEQ, "global_batch_size": 2, "micro_batch_size": 2, "eval_iters": 1,
                "calculate_per_token_loss": "true", "bf16": "false"}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return tools.run_ok("ckpt-train", "evaluate", "--init", f"hf:{model}", *words)["loss"], tokens


def trains_as_transformers(folder, model):
    loss, tokens = loss_of_trainer(folder, model)
    assert loss == pytest.approx(transformers_run.mean_loss(model, tokens), rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_comes_back_as_it_was(name, tmp_path):
    build(*MODELS[name]).save_pretrained(tmp_path / "model")
    tools.convert("hf-to-fsdp", tmp_path / "model", tmp_path / "fsdp")
    tools.convert("fsdp-to-hf", tmp_path / "fsdp", tmp_path / "back")
    same_tensors(tmp_path / "back", stored(tmp_path / "model"))


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(REFUSED)))
def test_is_trained_as_transformers_computes_it(name, tmp_path):
    build(*MODELS[name]).save_pretrained(tmp_path / "model")
    trains_as_transformers(tmp_path, tmp_path / "model")


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_for_the_reason_that_its_conversion_warns_of(name, tmp_path):
    build(*MODELS[name]).save_pretrained(tmp_path / "model")
    code, _, stderr = tools.run("ckpt-convert", "hf-to-fsdp", tmp_path / "model", tmp_path / "fsdp")
    assert code == 0 and REFUSED[name] in stderr
    data = ("--set", f"data_path={tmp_path / 'tokens.jsonl'}", "--set", "seq_length=8")
    for source in (("--init", f"hf:{tmp_path / 'model'}"), ("--load", tmp_path / "fsdp", "--set", "finetune=true")):
        code, _, stderr = tools.run("ckpt-train", "evaluate", *source, *data)
        assert code == 3 and REFUSED[name] in stderr


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "head_dim": 8}


@pytest.mark.parametrize("config_class,more", [("LlamaConfig", {}), ("Qwen3Config", {"head_dim": 8}), ("Qwen3MoeConfig", EXPERTS)])
def test_biases_of_attention_alone_are_saved_and_resumed(config_class, more, tmp_path):
    build(config_class, common(attention_bias=True, **more), torch.float32).save_pretrained(tmp_path / "model")
    _, tokens = loss_of_trainer(tmp_path, tmp_path / "model")
    settings = {"data_path": tmp_path / "tokens.jsonl", "seq_length": SEQ, "global_batch_size": 2, "micro_batch_size": 2,
                "calculate_per_token_loss": "true", "lr": "1e-3"}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

    def train(*options):
        code, _, stderr = tools.run("ckpt-train", "train", *options)
        assert code == 0, stderr

    train("--init", f"hf:{tmp_path / 'model'}", *words, "--save", tmp_path / "run", "--set", "train_iters=1")
    train("--load", tmp_path / "run", "--save", tmp_path / "run", "--set", "train_iters=2", "--prove")
    tools.convert("fsdp-to-hf", tmp_path / "run", tmp_path / "hf")
    train("--init", f"hf:{tmp_path / 'model'}", *words, "--save", tmp_path / "published", "--set", "train_iters=2", "--set",
          "save_format=hf")
    published = stored(tmp_path / "published" / "iter_0000002")
    assert "model.layers.0.self_attn.o_proj.bias" in published
    same_tensors(tmp_path / "hf", published)
    loss = tools.run_ok("ckpt-train", "evaluate", "--load", tmp_path / "run", "--set", "eval_iters=1")["loss"]
    assert loss == pytest.approx(transformers_run.mean_loss(tmp_path / "hf", tokens), rel=1e-5)


@pytest.mark.parametrize("config_class,more", [("LlamaConfig", {}), ("Qwen3MoeConfig", EXPERTS)])
def test_a_base_model_with_a_tied_head(config_class, more, tmp_path):
    """AutoModel.save_pretrained: names without `model.`"""
    build(config_class, common(tie_word_embeddings=True, **more)).model.save_pretrained(tmp_path / "model")
    source = stored(tmp_path / "model")
    assert "embed_tokens.weight" in source
    trains_as_transformers(tmp_path, tmp_path / "model")
    tools.convert("hf-to-fsdp", tmp_path / "model", tmp_path / "fsdp")
    tools.convert("fsdp-to-hf", tmp_path / "fsdp", tmp_path / "back")
    same_tensors(tmp_path / "back", source)


def test_a_base_model_without_a_head_says_so(tmp_path):
    build("LlamaConfig", common()).model.save_pretrained(tmp_path / "model")
    code, document, _ = tools.run("ckpt-convert", "hf-to-fsdp", tmp_path / "model", tmp_path / "fsdp", "--json")
    assert code == 3
    assert [(e["kind"], e["tensor"]) for e in document["errors"]] == [("missing", "lm_head.weight")]
    assert "base model" in document["errors"][0]["hint"]
    tools.convert("hf-to-fsdp", tmp_path / "model", tmp_path / "fsdp", "--allow-missing")
    tools.convert("fsdp-to-hf", tmp_path / "fsdp", tmp_path / "back", "--allow-missing")
    same_tensors(tmp_path / "back", stored(tmp_path / "model"))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks(number, tmp_path):
    build("LlamaConfig", common()).save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    text = path.read_text().replace("{", f'{{\n  "of_nobody": {number},\n  "more": [1, {number}],', 1)
    path.write_text(text)
    trains_as_transformers(tmp_path, tmp_path / "model")
    tools.convert("hf-to-fsdp", tmp_path / "model", tmp_path / "fsdp")
    tools.convert("fsdp-to-hf", tmp_path / "fsdp", tmp_path / "back")
    assert (tmp_path / "back" / "config.json").read_text() == text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_parts_of_different_dtypes_with_one_asked_for(dtype, tmp_path):
    build("Qwen2Config", common()).save_pretrained(tmp_path / "model")
    tensors = stored(tmp_path / "model")
    for key in tensors:
        kinds = {"k_proj": torch.float32, "v_proj": torch.float16, "up_proj": torch.float32}
        tensors[key] = tensors[key].to(next((kind for part, kind in kinds.items() if part in key), torch.bfloat16))
    safetensors.torch.save_file(tensors, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    code, document, _ = tools.run("ckpt-convert", "hf-to-fsdp", tmp_path / "model", tmp_path / "fsdp", "--json")
    assert code == 3 and "--dtype" in document["errors"][0]["hint"], document
    tools.convert("hf-to-fsdp", tmp_path / "model", tmp_path / "fsdp", "--dtype", dtype)
    tools.convert("fsdp-to-hf", tmp_path / "fsdp", tmp_path / "back")
    same_tensors(tmp_path / "back", {key: value.to(getattr(torch, dtype)) for key, value in tensors.items()})
    trains_as_transformers(tmp_path, tmp_path / "model")
