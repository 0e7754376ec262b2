"""What does not fit the model is refused before a byte is written, all of it at once."""
import json
import shutil

import pytest
import safetensors.torch
import torch

import golden
import tools

CASE = next(c for c in golden.models() if c.name == "llama-untied-bf16")
Q, K, UP = (f"model.layers.0.{part}.weight" for part in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj"))


def changed(folder, change):
    """A copy of the model in one shard, its tensors changed."""
    shutil.copytree(CASE / "ckpt", folder)
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= safetensors.torch.load_file(path)
        path.unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    change(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def drop_two(tensors):
    del tensors[Q], tensors[UP]


def add_two(tensors):
    tensors["model.layers.0.self_attn.z_proj.weight"] = torch.zeros(2, 2)
    tensors["extra"] = torch.zeros(3)


def reshape_two(tensors):
    tensors[Q], tensors[UP] = tensors[Q][:-1].clone(), tensors[UP][:, :-1].clone()


def retype_one(tensors):
    # q, k and v become one tensor, which can have one dtype only.
    tensors[K] = tensors[K].float()


# change -> (kinds that say it, tensors that must all be named)
CHANGES = {
    "missing": (drop_two, {"missing"}, [Q, UP]),
    "unmapped": (add_two, {"unmapped"}, ["model.layers.0.self_attn.z_proj.weight", "extra"]),
    "shape": (reshape_two, {"shape_mismatch"}, [Q, UP]),
    "dtype": (retype_one, {"dtype_mismatch"}, [K]),
}


@pytest.mark.parametrize("plan", ["plan", "convert"])
@pytest.mark.parametrize("name", CHANGES)
def test_refused_with_everything_named(name, plan, tmp_path):
    change, kinds, named = CHANGES[name]
    source = changed(tmp_path / "hf", change)
    options = ["--plan"] if plan == "plan" else []
    code, document, stderr = tools.run("ckpt-convert", "hf-to-fsdp", source, tmp_path / "out", *options, "--json")
    assert code == 3, (code, stderr)
    assert document["ok"] is False
    assert {e["kind"] for e in document["errors"]} & kinds, document["errors"]
    everything = " ".join(str(value) for e in document["errors"] for value in e.values())
    assert all(key in everything for key in named), document["errors"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf"]


def test_a_plan_touches_nothing(tmp_path):
    code, _, stderr = tools.run("ckpt-convert", "hf-to-fsdp", CASE / "ckpt", tmp_path / "out", "--plan", "--json")
    assert code == 0, stderr
    assert list(tmp_path.iterdir()) == []


def test_overwrite_replaces_the_whole_target(tmp_path):
    target = tmp_path / "out"
    tools.convert("hf-to-fsdp", CASE / "ckpt", target, "--files", "3")
    assert (target / "release" / "__0_2.distcp").exists()
    tools.convert("hf-to-fsdp", CASE / "ckpt", target, "--overwrite")
    assert not (target / "release" / "__0_2.distcp").exists()
    assert tools.inspect("verify", target)["ok"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_overwrite_spares_what_somebody_added(tmp_path):
    target = tmp_path / "out"
    tools.convert("hf-to-fsdp", CASE / "ckpt", target)
    before = tools.digests(target)
    (target / "logs").mkdir()
    (target / "logs" / "events").write_text("mine")
    code, document, stderr = tools.run("ckpt-convert", "hf-to-fsdp", CASE / "ckpt", target, "--overwrite", "--json")
    assert code == 3 and document["errors"][0]["actual"] == "logs/events", (code, document, stderr)
    assert (target / "logs" / "events").read_text() == "mine"
    assert tools.digests(target) == before


def refusal(verb, source, target, *options):
    """The one error of a conversion that cannot be, in the document and on standard error."""
    code, document, stderr = tools.run("ckpt-convert", verb, source, target, *options, "--json")
    assert code in (2, 3) and not target.exists(), (code, stderr)
    error, = document["errors"]
    assert stderr.count("error:") == 1, stderr
    return error


def test_the_wrong_direction_is_one_error_that_names_the_verb(tmp_path):
    tools.convert("hf-to-fsdp", CASE / "ckpt", tmp_path / "fsdp")
    wrong = refusal("hf-to-fsdp", tmp_path / "fsdp", tmp_path / "out")
    assert wrong["kind"] == "usage" and "fsdp_dtensor" in wrong["actual"] and "fsdp-to-hf" in wrong["hint"]
    wrong = refusal("fsdp-to-hf", CASE / "ckpt", tmp_path / "out")
    assert wrong["kind"] == "usage" and "named as hf" in wrong["actual"] and "hf-to-fsdp" in wrong["hint"]
    wrong = refusal("fsdp-to-hf", golden.root() / "torch_dist" / "dense_tp1_core018_integrity" / "ckpt", tmp_path / "out")
    assert wrong["kind"] == "usage" and "torch_dist" in wrong["actual"]


def test_a_file_that_is_no_model_is_one_error(tmp_path):
    torch.save({"model": {"w": torch.zeros(3)}, "step": 1}, tmp_path / "state.pt")
    assert refusal("hf-to-fsdp", tmp_path / "state.pt", tmp_path / "out")["kind"] == "not_found"
    unknown = refusal("hf-to-fsdp", tmp_path / "state.pt", tmp_path / "out", "--hf-assets", CASE / "ckpt")
    assert unknown["kind"] == "unmapped" and unknown["actual"] == "model.w"


@pytest.mark.parametrize("setting,factor", [("hidden_size", 2), ("intermediate_size", 2), ("num_hidden_layers", 2), ("vocab_size", 2)])
def test_a_setting_that_contradicts_the_tensors_is_one_error(setting, factor, tmp_path):
    source = shutil.copytree(CASE / "ckpt", tmp_path / "hf")
    config = json.loads((source / "config.json").read_text())
    config[setting] *= factor
    (source / "config.json").write_text(json.dumps(config))
    wrong = refusal("hf-to-fsdp", source, tmp_path / "out")
    assert wrong["message"].endswith(": " + setting) and wrong["file"].endswith("config.json"), wrong
    assert wrong["actual"] == str(config[setting]) and wrong["expected"].startswith(f"{config[setting] // factor}, ")


@pytest.mark.parametrize("says", [True, False])
def test_a_switch_that_contradicts_the_tensors_is_one_error(says, tmp_path):
    def add_biases(tensors):
        for key in [k for k in tensors if "self_attn" in k and k.endswith("_proj.weight")]:
            tensors[key.removesuffix("weight") + "bias"] = torch.zeros(len(tensors[key]), dtype=tensors[key].dtype)

    source = changed(tmp_path / "hf", (lambda tensors: None) if says else add_biases)
    config = json.loads((source / "config.json").read_text())
    config.pop("attention_bias", None)
    (source / "config.json").write_text(json.dumps(config | ({"attention_bias": True} if says else {})))
    wrong = refusal("hf-to-fsdp", source, tmp_path / "out")
    assert wrong["message"].endswith(": attention_bias") and wrong["actual"] == str(says).lower(), wrong
    assert wrong["expected"].startswith(str(not says).lower() + ", ")


# What auto-gptq, autoawq and bitsandbytes make of a linear layer.
QUANTISED = {
    "gptq": {"qweight": torch.int32, "qzeros": torch.int32, "scales": torch.float16, "g_idx": torch.int32},
    "awq": {"qweight": torch.int32, "qzeros": torch.int32, "scales": torch.float16},
    "bitsandbytes": {"weight": torch.uint8, "weight.absmax": torch.uint8, "weight.quant_map": torch.float32},
}


@pytest.mark.parametrize("has_config", [True, False])
@pytest.mark.parametrize("method", QUANTISED)
def test_quantised_models_are_called_by_their_method(method, has_config, tmp_path):
    def quantise(tensors):
        for key in [k for k in tensors if k.endswith("_proj.weight")]:
            del tensors[key]
            for part, dtype in QUANTISED[method].items():
                tensors[key.removesuffix("weight") + part] = torch.zeros(4, dtype=dtype)

    source = changed(tmp_path / "hf", quantise)
    if has_config:
        config = json.loads((source / "config.json").read_text())
        (source / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": method}}))
    wrong = refusal("hf-to-fsdp", source, tmp_path / "out")
    assert wrong["kind"] == "unsupported" and method in wrong["message"], wrong


@pytest.mark.parametrize("name, value, refused", [("layernorm_zero_centered_gamma", True, "norms store their weights less one"),
                                                  ("use_mup", True, None)])
def test_what_the_arguments_say_of_the_numbers(name, value, refused, tmp_path):
    """Names that are not Megatron's would say something else of them: refused, or told if numbers are the same and the model is not."""
    tools.convert("hf-to-torch-dist", CASE / "ckpt", tmp_path / "core")
    (common,) = (tmp_path / "core").glob("**/common.pt")
    state = torch.load(common, weights_only=False)
    setattr(state["args"], name, value)
    torch.save(state, common)
    common.with_name("ckptkit.json").unlink()
    for words in (("--to", "hf", "--hf-assets", CASE / "ckpt"), ("--to", "dcp", "--naming", "fsdp2")):
        target = tmp_path / "other"
        code, _, stderr = tools.run("ckpt-convert", "convert", tmp_path / "core", target, *words)
        if refused:
            assert code == 3 and refused in stderr and not target.exists()
        else:
            assert code == 0 and "warning" in stderr and "muP" in stderr
            shutil.rmtree(target)
    code, _, stderr = tools.run("ckpt-convert", "convert", tmp_path / "core", tmp_path / "described", "--to", "fsdp_dtensor")
    assert code == (3 if refused else 0), stderr  # by config.json, which says nothing of it
    shutil.rmtree(common.with_name("hf_assets"))
    tools.convert("convert", tmp_path / "core", tmp_path / "fsdp", "--to", "fsdp_dtensor")
    assert tools.inspect("show", tmp_path / "fsdp", "args")["value"]["$object"]["state"][name] == value
