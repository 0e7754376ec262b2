"""The most likely continuation of a text by a model of bytes, as Transformers computes it: greedy.py MODEL TEXT TOKENS."""
import sys

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
ids = list(sys.argv[2].encode())
with torch.no_grad():
    for _ in range(int(sys.argv[3])):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
print(bytes(ids[len(sys.argv[2]):]).decode(errors="replace"))
