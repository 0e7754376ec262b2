"""`ckpt-train check`: the trainer equals live Transformers on models of other sizes than the goldens. Numbers that it would round are refused."""
import json

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import get_state_dict

import tools

BATCH, SEQ = 2, 11


def common(**more):
    return {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.2, **more}


def latent(**more):
    return common(num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=10,
                  n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, first_k_dense_replace=1,
                  n_shared_experts=1, **more)


def routed(**more):
    return common(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, first_k_dense_replace=1, head_dim=12, **more)


LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 5e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0,
             "mscale_all_dim": 0.7, "beta_fast": 32, "beta_slow": 1}

# Name -> configuration class and what it is given; sizes that divide nothing evenly where the family allows them.
MODELS = {
    "llama-gqa": ("LlamaConfig", common(head_dim=10, num_hidden_layers=3)),
    "llama-rope": ("LlamaConfig", common(rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True)),
    "llama-bias": ("LlamaConfig", common(attention_bias=True, mlp_bias=True, num_key_value_heads=4)),
    "llama-mlp-bias": ("LlamaConfig", common(mlp_bias=True)),
    "mistral-window": ("MistralConfig", common(sliding_window=4, head_dim=12)),
    "mistral": ("MistralConfig", common(sliding_window=None, num_key_value_heads=1, vocab_size=97)),
    "qwen2": ("Qwen2Config", common(num_hidden_layers=3)),
    "qwen2-tied": ("Qwen2Config", common(tie_word_embeddings=True, num_key_value_heads=1, intermediate_size=21)),
    "qwen2-window": ("Qwen2Config", common(use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": ("Qwen3Config", common(head_dim=14, num_hidden_layers=1)),
    "qwen3-tied": ("Qwen3Config", common(head_dim=8, tie_word_embeddings=True, num_key_value_heads=4)),
    "qwen3moe": ("Qwen3MoeConfig", common(head_dim=8, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=18)),
    "qwen3moe-normalised": ("Qwen3MoeConfig", common(head_dim=6, num_experts=4, num_experts_per_tok=3, moe_intermediate_size=10,
                                                     norm_topk_prob=True, mlp_only_layers=[0])),
    "mixtral": ("MixtralConfig", common(num_local_experts=4, num_experts_per_tok=2)),
    "mixtral-window": ("MixtralConfig", common(num_local_experts=6, num_experts_per_tok=3, sliding_window=4, hidden_size=40)),
    "deepseekv2": ("DeepseekV2Config", latent(n_group=1, topk_group=1, topk_method="greedy", norm_topk_prob=False)),
    "deepseekv2-groups": ("DeepseekV2Config", latent(n_group=4, topk_group=2, topk_method="group_limited_greedy",
                                                     norm_topk_prob=False, routed_scaling_factor=1.5) | {"q_lora_rank": None}),
    "deepseekv2-bias": ("DeepseekV2Config", latent(attention_bias=True, mlp_bias=True, topk_method="greedy")),
    "deepseekv3-bias": ("DeepseekV3Config", latent(n_group=2, topk_group=1, attention_bias=True)),
    "deepseekv3": ("DeepseekV3Config", latent(n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5)),
    "glm4moe": ("Glm4MoeConfig", routed(n_group=4, topk_group=2, attention_bias=True, use_qk_norm=True, routed_scaling_factor=2.5)),
    "glm4moe-yarn": ("Glm4MoeConfig", routed(n_shared_experts=2, rope_parameters=YARN_ROPE | {"partial_rotary_factor": 0.5})),
    "qwen2moe": ("Qwen2MoeConfig", common(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=18, shared_expert_intermediate_size=14,
                                          num_key_value_heads=4)),
    "qwen2moe-window": ("Qwen2MoeConfig", common(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=10, norm_topk_prob=True,
                                                 shared_expert_intermediate_size=22, qkv_bias=False, use_sliding_window=True,
                                                 sliding_window=4, mlp_only_layers=[0], num_hidden_layers=3)),
    # Transformers gives the row of a padding token no gradient.
    "olmo2": ("Olmo2Config", common(num_hidden_layers=3, tie_word_embeddings=True, pad_token_id=None)),
    "olmo2-bias": ("Olmo2Config", common(attention_bias=True, head_dim=10, num_key_value_heads=1, pad_token_id=None)),
    "olmoe": ("OlmoeConfig", common(num_experts=6, num_experts_per_tok=2, pad_token_id=None)),
    "deepseekv3-yarn": ("DeepseekV3Config", latent(n_group=2, topk_group=1, norm_topk_prob=True, rope_parameters=YARN_ROPE)),
}


def write(name, folder):
    """A random model and what Transformers makes of one batch, as goldens have it."""
    config_class, settings = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    config = getattr(transformers, config_class)(**settings)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key:
                parameter.uniform_(0.5, 1.5)
            elif key.endswith(".bias"):
                parameter.normal_(0, 0.2)
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.uniform_(-0.1, 0.1)
    model.save_pretrained(folder / "model")

    input_ids = torch.randint(0, config.vocab_size, (BATCH, SEQ))
    labels = input_ids.clone()
    labels[0, 3] = -100
    out = model(input_ids=input_ids, labels=labels, use_cache=False)
    out.loss.backward()
    tensors = {"input_ids": input_ids, "labels": labels, "loss": out.loss.detach(), "logits": out.logits.detach()}
    tensors |= {f"grad.{key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
    safetensors.torch.save_file({key: t.contiguous() for key, t in tensors.items()}, folder / "reference.safetensors")
    return tensors


def check(folder, *options):
    return tools.run("ckpt-train", "check", "--init", f"hf:{folder / 'model'}", "--reference",
                     folder / "reference.safetensors", "--json", *options)


@pytest.mark.parametrize("name", MODELS)
def test_equals_transformers(name, tmp_path):
    tensors = write(name, tmp_path)
    code, document, stderr = check(tmp_path)
    assert code == 0, f"{stderr}\n{document}"
    assert set(document["gradients"]) == {key.removeprefix("grad.") for key in tensors if key.startswith("grad.")}
    code, document, stderr = check(tmp_path, "--ranks", "2")
    assert code == 0, f"{stderr}\n{document}"


@pytest.mark.parametrize("name", ["qwen2moe", "qwen3moe", "mixtral", "deepseekv3"])
@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
def test_experts_on_two_ranks(name, dispatcher, tmp_path):
    write(name, tmp_path)
    code, document, stderr = check(tmp_path, "--ranks", "2", "--set", "expert_model_parallel_size=2", "--set",
                                   f"moe_token_dispatcher_type={dispatcher}")
    assert code == 0, f"{stderr}\n{document}"


def test_a_wrong_gradient_is_found(tmp_path):
    tensors = write("qwen3moe", tmp_path)
    key = "grad.model.layers.1.mlp.experts.down_proj"
    tensors[key].view(-1)[5] += 1e-4 * tensors[key].abs().max()
    safetensors.torch.save_file({k: t.contiguous() for k, t in tensors.items()}, tmp_path / "reference.safetensors")
    code, document, _ = check(tmp_path)
    assert code == 1 and document["ok"] is False
    worst = max(document["gradients"], key=document["gradients"].get)
    assert f"grad.{worst}" == key and 0.5e-4 < document["gradients"][worst] < 2e-4


def test_a_wrong_loss_is_found(tmp_path):
    tensors = write("llama-gqa", tmp_path)
    tensors["loss"] = tensors["loss"] * 1.001
    safetensors.torch.save_file({k: t.contiguous() for k, t in tensors.items()}, tmp_path / "reference.safetensors")
    assert check(tmp_path)[0] == 1


def test_a_run_in_float64_does_not_go_on_rounded(tmp_path):
    torch.manual_seed(5)
    config = transformers.LlamaConfig(**common())
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, config.vocab_size, (BATCH, SEQ))
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": moments}, checkpoint_id=tmp_path / "run", no_dist=True)
    config.save_pretrained(tmp_path / "run")
    with torch.no_grad():
        loss = model(input_ids=tokens, labels=tokens).loss.item()

    (tmp_path / "data.jsonl").write_text("".join(json.dumps({"input_ids": row, "loss_mask": [1] * SEQ}) + "\n" for row in tokens.tolist()))
    metrics = tmp_path / "metrics.jsonl"

    def train(*settings):
        settings = [f"data_path={tmp_path / 'data.jsonl'}", f"seq_length={SEQ - 1}", f"global_batch_size={BATCH}", "packing=false", "shuffle=false",
                    f"metrics={metrics}", *settings]
        code, _, stderr = tools.run("ckpt-train", "train", "--load", tmp_path / "run", "--save", tmp_path / "saved",
                                    *(word for setting in settings for word in ("--set", setting)))
        return code, stderr

    code, said = train("restart_data=true", "train_iters=2")
    assert code != 0 and "expected float32, found float64" in said and "finetune=true" in said, said
    assert not (tmp_path / "saved").exists()
    code, said = train("finetune=true", "train_iters=1")
    assert code == 0 and "rounded to the trainer's float32" in said, said
    assert json.loads(metrics.read_text().splitlines()[0])["loss"] == pytest.approx(loss, rel=1e-6)
