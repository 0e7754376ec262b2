"""Layers that predict further tokens, as DeepSeek-V3 and GLM-4.5 publish them. Transformers makes and saves none."""
import re

import torch


def add(tensors, config, count):
    """Adds so many behind the last layer, and of its kind, with random values. Sets the key that counts them."""
    first, hidden = config["num_hidden_layers"], config["hidden_size"]
    embedding = tensors["model.embed_tokens.weight"]
    last = {m[1]: value for key, value in tensors.items() if (m := re.fullmatch(rf"model\.layers\.{first - 1}\.(.*)", key))}
    around = {"enorm.weight": (hidden,), "hnorm.weight": (hidden,), "eh_proj.weight": (hidden, 2 * hidden), "shared_head.norm.weight": (hidden,)}
    for layer in range(first, first + count):
        own = {name: torch.randn_like(value) for name, value in last.items()}
        own |= {name: torch.randn(shape, dtype=embedding.dtype) for name, shape in around.items()}
        own |= {"embed_tokens.weight": embedding.clone(), "shared_head.head.weight": tensors.get("lm_head.weight", embedding).clone()}
        tensors |= {f"model.layers.{layer}.{name}": value for name, value in own.items()}
    config["num_nextn_predict_layers"] = count
