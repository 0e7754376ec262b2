"""Models of random weights as Hugging Face publishes them, and converted, for tests with real Megatron."""
import json

import safetensors.torch
import torch
import transformers

import further_layers
import mapping
import tools


def publish(config, folder, further=0):
    """Writes the repository `hf` and the Megatron root `core` (torch_dist, local layers), both below `folder`, which it returns.

    The model has so many layers that predict `further` tokens.
    """
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases are constants otherwise
            parameter.normal_()
    for module in model.modules():  # float32, as on the hub and in Megatron
        if hasattr(module, "e_score_correction_bias"):
            module.e_score_correction_bias = module.e_score_correction_bias.float().normal_()
    model.save_pretrained(folder / "hf")
    if further:
        tensors, described = mapping.read_repository(folder / "hf")
        further_layers.add(tensors, described, further)
        safetensors.torch.save_file(tensors, folder / "hf/model.safetensors", metadata={"format": "pt"})
        (folder / "hf/config.json").write_text(json.dumps(described))
    tools.convert("hf-to-torch-dist", folder / "hf", folder / "core", "--transformer-impl", "local")
    return folder
