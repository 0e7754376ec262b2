"""What real Megatron-Bridge makes of its tree, on the CPU and one rank.

    megatron_bridge.py CORE BRIDGE read ROOT LIVE        builds the model that run_config.yaml describes, loads the weights, and
                                                         stores them in LIVE (torch.save); `-` for LIVE: makes the classes alone
    megatron_bridge.py CORE BRIDGE rewrite ROOT -        takes `args` away from a torch_dist or fsdp_dtensor checkpoint, and writes
                                                         run_config.yaml, train_state.pt and the trackers in their place, as
                                                         Megatron-Bridge does
CORE, BRIDGE: where the libraries' packages lie.

Packages that only GPUs need, and the __init__ files that import every model, are replaced by empty modules.
"""
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import pickle
import shutil
import sys
import types
import warnings

warnings.simplefilter("ignore")
core, bridge, verb, path = sys.argv[1:5]
sys.path[:0] = [core, bridge]
os.environ.update(CUDA_DEVICE_MAX_CONNECTIONS="1", TORCH_CUDA_ARCH_LIST="9.0", GLOO_SOCKET_IFNAME="lo")

import no_gpu

no_gpu.install()
import torch


def attribute(name):
    """A class of a module that is not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that are imported and not used here."""
    roots = ("six", "torch.utils.tensorboard", "flash_attn", "modelopt", "nvidia_resiliency_ext", "wandb", "mlflow", "datasets", "megatron.energon",
             "nemo_run", "qwen_vl_utils", "tensorboard", "PIL", "hydra", "mamba_ssm", "causal_conv1d", "open_clip", "tiktoken", "sentencepiece")

    def find_spec(self, name, path, target=None):
        if any(name == root or name.startswith(root + ".") for root in self.roots):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []

        module.__getattr__ = attribute
        return module

    def exec_module(self, module):
        pass


def package(name):
    module = types.ModuleType(name)
    module.__path__ = [os.path.join(bridge, *name.split("."))]

    def member(wanted):
        is_module = not wanted.startswith("__") and importlib.util.find_spec(f"{name}.{wanted}")
        return importlib.import_module(f"{name}.{wanted}") if is_module else attribute(wanted)
    module.__getattr__ = member
    sys.modules[name] = module


sys.meta_path.insert(0, Empty())
for name in ("", ".models", ".models.gpt_oss", ".training", ".utils", ".data", ".peft"):
    package("megatron.bridge" + name)
from megatron.bridge.models import gpt_provider
from megatron.bridge.models.gpt_oss import gpt_oss_provider

sys.modules["megatron.bridge.models"].GPTModelProvider = gpt_provider.GPTModelProvider
from megatron.bridge.training import checkpointing, config, model_load_save, state
from megatron.bridge.training.tokenizers.config import TokenizerConfig
from megatron.bridge.training.utils import checkpoint_utils
from megatron.bridge.utils import instantiate_utils

checkpointing.restore_modelopt_state = lambda model, state_dict: None  # of a package that is not there
gpt_oss_provider.is_te_min_version = lambda version: False  # without Transformer Engine this compares None with a version


def plain(value):
    """For JSON."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def progress(train_state):
    return {k: v.item() for k, v in train_state.state_dict().items()}


def read(root, live):
    iteration, release = checkpointing._resolve_checkpoint_iteration(root, None)
    folder = checkpointing.get_checkpoint_name(root, iteration, release)
    run_config = checkpoint_utils.read_run_config(os.path.join(folder, "run_config.yaml"))
    # Every section becomes an object of its class, which knows every member.
    strict = instantiate_utils.InstantiationMode.STRICT
    sections = {name: instantiate_utils.instantiate(section, mode=strict) for name, section in run_config.items()
                if isinstance(section, dict)}
    tokenizer = sections.get("tokenizer")
    model = model_load_save.load_model_config(folder)[0]
    model.moe_grouped_gemm = False  # which needs a GPU, and has the same keys
    model.finalize()
    if live != "-":
        weights = model_load_save.build_and_load_model(folder, model, use_cpu_init=True)
        if isinstance(weights, list):
            (weights,) = weights
        torch.save({k: v for k, v in weights.state_dict().items() if isinstance(v, torch.Tensor)}, live)
    return {"folder": folder, "progress": progress(checkpoint_utils.read_train_state(os.path.join(folder, "train_state.pt"))),
            "run_config": plain(run_config), "classes": {k: type(v).__name__ for k, v in sections.items()},
            "has_tokenizer": tokenizer is not None and tokenizer.tokenizer_model == pathlib.Path()}


def without_args(folder):
    """The arguments are in the common state, or an object of their own."""
    if (folder / "common.pt").exists():
        common = torch.load(folder / "common.pt", weights_only=False)
        del common["args"]
        torch.save(common, folder / "common.pt")
        return
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    del metadata.state_dict_metadata["args"]
    (index,) = [index for index in metadata.storage_data if index.fqn == "args"]
    del metadata.storage_data[index]
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def rewrite(root, source):
    """Its own run_config.yaml and train_state.pt are what is written again."""
    iteration, release = checkpointing._resolve_checkpoint_iteration(root, None)
    folder = pathlib.Path(checkpointing.get_checkpoint_name(root, iteration, release))
    without_args(folder)
    sections = {name: instantiate_utils.instantiate(section) for name, section in
                checkpoint_utils.read_run_config(str(folder / "run_config.yaml")).items() if name != "_target_"}
    sections["model"].finalize()
    cfg = config.ConfigContainer(**sections)
    done = checkpoint_utils.read_train_state(str(folder / "train_state.pt"))
    cfg.to_yaml(str(folder / "run_config.yaml"))
    torch.save(done.state_dict(), folder / "train_state.pt")
    shutil.copy(folder / "train_state.pt", pathlib.Path(root) / "latest_train_state.pt")
    (pathlib.Path(root) / "latest_checkpointed_iteration.txt").unlink()
    for name in ("ckptkit.json", "hf_assets"):
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink(missing_ok=True)
    return {"folder": str(folder)}


print(json.dumps({"read": read, "rewrite": rewrite}[verb](*sys.argv[4:6])))
