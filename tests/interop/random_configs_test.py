"""Random legal configurations: the trainer computes what Transformers does, or says by name what it does not."""
import concurrent.futures
import json
import os

import pytest
import safetensors.torch
import torch
import transformers

import further_layers
import random_configs
import tools

PER_FAMILY = int(os.environ.get("CKPT_TEST_COUNT", 26))
SEED = int(os.environ.get("CKPT_TEST_SEED", 20261123))
BATCH = 2
# fp32 against fp32, of the largest logit.
TOLERANCE = 2e-5


def randomise(model, dtype):
    """Weights that matter, with values that `dtype` can hold."""
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key:
                parameter.uniform_(0.5, 1.5)
            elif key.endswith("bias"):
                parameter.normal_(0, 0.3)
            parameter.copy_(parameter.to(dtype))
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.uniform_(-0.1, 0.1)
                buffer.copy_(buffer.to(dtype))


def weights(folder):
    return {key: tensor for path in sorted(folder.glob("*.safetensors")) for key, tensor in safetensors.torch.load_file(path).items()}


def mean_loss(logits, labels):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def make(case, folder):
    """Writes the model of a configuration, data, and what Transformers computes; gives the loss of the data."""
    torch.manual_seed(case.seed)
    model_folder = folder / "model"
    model_folder.mkdir(parents=True)
    path = model_folder / "config.json"
    path.write_text(json.dumps(case.config))
    config = transformers.AutoConfig.from_pretrained(model_folder)
    config._attn_implementation = "eager"
    dtype = getattr(torch, case.dtype)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    randomise(model, dtype)

    tokens = torch.randint(0, random_configs.VOCAB, (BATCH, random_configs.SEQ + 1))
    input_ids = tokens[:, :-1].contiguous()
    with torch.no_grad():
        logits = model(input_ids=input_ids, use_cache=False).logits
    # Not the head's own loss, which may hold that of the router.
    reference = {"input_ids": input_ids, "labels": input_ids.clone(), "logits": logits.contiguous(),
                 "loss": mean_loss(logits[:, :-1], input_ids[:, 1:])}
    safetensors.torch.save_file(reference, folder / "reference.safetensors")
    (folder / "tokens.jsonl").write_text("".join(json.dumps({"input_ids": row, "labels": row}) + "\n" for row in tokens.tolist()))

    model.to(dtype).save_pretrained(model_folder)
    if not case.as_saved:
        path.write_text(json.dumps(case.config))
    if case.further:
        tensors, described = weights(model_folder), json.loads(path.read_text())
        counted = {"num_hidden_layers": config.num_hidden_layers, "hidden_size": config.hidden_size}
        further_layers.add(tensors, counted, case.further)
        safetensors.torch.save_file(tensors, model_folder / "model.safetensors", metadata={"format": "pt"})
        path.write_text(json.dumps(described | {"num_nextn_predict_layers": case.further}))
    return mean_loss(logits, tokens[:, 1:]).item()


def draw_legal(family, number, root):
    """A case whose configuration Transformers accepts and computes, its folder and its loss."""
    for attempt in range(20):
        case = random_configs.draw(SEED + number + 1000 * attempt, family)
        folder = root / family / str(case.seed)
        try:
            loss = make(case, folder)
        except Exception as error:  # what the class of Transformers itself refuses is not a legal configuration
            refused = error
            continue
        if torch.isfinite(torch.tensor(loss)):
            return case, folder, loss
    raise AssertionError(f"{family}: twenty draws in a row are not legal: {refused}")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    print(f"CKPT_TEST_SEED={SEED}")
    root = tmp_path_factory.mktemp("configs")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    return [draw_legal(family, n, root) for family in random_configs.CLASSES for n in range(PER_FAMILY)]


def all_of(judge, models):
    """What is wrong with each model, judged side by side."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda model: judge(*model), models))
    wrong = [f"{verdict}\n{case}" for verdict, (case, _, _) in zip(verdicts, models) if verdict]
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(models)} models\n\n" + "\n\n".join(wrong), pytrace=False)


def said(document, stderr):
    return json.dumps(document) + stderr


def names_one(text, keys):
    return any(key in text for key in keys)


def against_transformers(case, folder, _):
    code, document, stderr = tools.run("ckpt-train", "check", "--init", f"hf:{folder / 'model'}", "--reference",
                                       folder / "reference.safetensors", "--tolerance", TOLERANCE, "--json")
    if case.refusable:
        if code == 3 and names_one(said(document, stderr), case.refusable):
            return None
        return f"exit {code} where {sorted(case.refusable)} must be refused by name\n{said(document, stderr)[:1000]}"
    if code == 0:
        return None
    return f"exit {code}\n{said(document, stderr)[:1500]}"


def test_equals_transformers_or_is_refused_by_name(models):
    all_of(against_transformers, models)


def comes_back(case, folder, _):
    """Whether the trainer computes it or not."""
    if case.config.get("hidden_act", "silu") not in ("silu", "swish"):  # Megatron has no such MLP
        code, document, stderr = tools.run("ckpt-convert", "hf-to-fsdp", folder / "model", folder / "there", "--json")
        is_refused = code == 3 and len(document["errors"]) == 1 and "hidden_act" in said(document, stderr)
        return None if is_refused else f"hf-to-fsdp: exit {code}, hidden_act not refused: {said(document, stderr)[:800]}"
    tools.convert("hf-to-fsdp", folder / "model", folder / "there")
    tools.convert("fsdp-to-hf", folder / "there", folder / "back")
    source, back = weights(folder / "model"), weights(folder / "back")
    wrong = [key for key in source.keys() | back.keys() if key not in source or key not in back or not torch.equal(source[key], back[key])]
    return f"not the same: {sorted(wrong)[:5]}" if wrong else None


def test_a_conversion_comes_back(models):
    all_of(comes_back, models)


def evaluate(folder, *source):
    settings = {"valid_data_path": folder / "tokens.jsonl", "seq_length": random_configs.SEQ, "global_batch_size": BATCH,
                "micro_batch_size": BATCH, "eval_iters": 1, "calculate_per_token_loss": "true", "bf16": "false"}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return tools.run("ckpt-train", "evaluate", *source, *words, "--json")


def converted(case, folder, loss):
    model, target = folder / "model", folder / "fsdp"
    code, direct, stderr = evaluate(folder, "--init", f"hf:{model}")
    if case.refusable:
        is_refused = code == 3 and names_one(said(direct, stderr), case.refusable)
        return None if is_refused else f"evaluate --init: exit {code}, not refused by name: {said(direct, stderr)[:800]}"
    if code != 0:
        return f"evaluate --init: exit {code}: {said(direct, stderr)[:1000]}"
    if abs(direct["loss"] - loss) > 1e-5 * abs(loss):
        return f"evaluate --init: loss {direct['loss']}, Transformers {loss}"
    code, document, warned = tools.run("ckpt-convert", "hf-to-fsdp", model, target, "--json")
    if code != 0:
        return f"hf-to-fsdp: exit {code}: {said(document, warned)[:1000]}"
    code, loaded, stderr = evaluate(folder, "--load", target, "--set", "finetune=true")
    if code == 0 and loaded["loss"] == direct["loss"]:
        return None
    warnings = [problem["message"] for problem in document.get("problems", [])]
    if code != 0 and warnings and all(warning in warned for warning in warnings):
        return None
    got = f"exit {code}: {said(loaded, stderr)[:800]}" if code != 0 else f"loss {loaded['loss']}, of the source {direct['loss']}"
    return f"evaluate --load: {got}; the conversion warned of {warnings}"


def test_a_conversion_is_the_same_model_or_says_what_it_lacks(models):
    all_of(converted, models)
