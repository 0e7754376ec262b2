"""Runs a model in Transformers as the references were computed: fp32 from the stored weights, eager, one thread."""
import safetensors.torch
import torch
import transformers

torch.set_num_threads(1)


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.eval()


def logits(folder, input_ids):
    with torch.no_grad():
        return load(folder)(input_ids=input_ids, use_cache=False).logits


def reference(case):
    return safetensors.torch.load_file(case / "reference.safetensors")


def mean_loss(folder, tokens):
    """Mean cross entropy over every position; each row of `tokens` holds one more than the model sees."""
    tokens = torch.tensor(tokens)
    out = logits(folder, tokens[:, :-1])
    return torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), tokens[:, 1:].reshape(-1)).item()
