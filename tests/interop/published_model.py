"""Models of random weights as Hugging Face publishes them, and converted, for tests with real Megatron."""
import torch
import transformers

import tools


def publish(config, folder):
    """Writes the repository `hf` and the Megatron root `core` (torch_dist, local layers), both below `folder`, which it returns."""
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases are constants otherwise
            parameter.normal_()
    model.save_pretrained(folder / "hf")
    tools.convert("hf-to-torch-dist", folder / "hf", folder / "core", "--transformer-impl", "local")
    return folder
