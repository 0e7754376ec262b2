"""Tokens that a peer and ckpt-train both train on."""
import torch


def token_stream(vocabulary, length=4000):
    return torch.randint(0, vocabulary, (length,), generator=torch.Generator().manual_seed(100))
