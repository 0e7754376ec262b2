"""The golden tree: where it is and what is in it."""
import functools
import json
import os
import pathlib

from tools import ROOT


def root():
    """CKPT_GOLDEN_DIR, else the whole tree beside the project, else the selection in it."""
    named = os.environ.get("CKPT_GOLDEN_DIR")
    candidates = [pathlib.Path(named)] if named else [ROOT.parent / "shared" / "golden", ROOT / "tests" / "golden"]
    return next(c for c in candidates if (c / "hf").is_dir())


def cases(group):
    return sorted(p.parent for p in (root() / group).glob("*/expected.json"))


@functools.cache
def account(case):
    return json.loads((case / "expected.json").read_text())


def config(case):
    return json.loads((case / "ckpt" / "config.json").read_text())


# The families whose layout tables exist; the tree holds more.
FAMILIES = {"llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe",
            "olmo2", "gpt_oss"}


def models():
    """Hugging Face repositories of those families, of plain weights alone."""
    return [c for c in cases("hf") if config(c)["model_type"] in FAMILIES and "quantization_config" not in config(c)]


def quantised():
    """Those that have to be decoded first."""
    return [c for c in cases("hf") if config(c)["model_type"] in FAMILIES and "quantization_config" in config(c)]


def megatron_dense_swiglu():
    """What Megatron-FSDP itself wrote of models that are a Llama: dense, SwiGLU, no tensor parallelism."""
    found = []
    for case in cases("fsdp_dtensor"):
        flags = account(case).get("flags") or []
        if "--swiglu" in flags and "--num-experts" not in flags and "--tensor-model-parallel-size" not in flags:
            found.append(case)
    return found


def name(case):
    return case.name
