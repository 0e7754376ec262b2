"""SHA-256 of a logical tensor: C order, little endian, the dtype's own bytes. For tests and for peers/*."""
import hashlib

import torch


def tensor_bytes(t):
    t = t.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if t.numel() == 0:
        return b""
    return t.reshape(-1).view(torch.uint8).numpy().tobytes()


def tensor_sha256(t):
    return hashlib.sha256(tensor_bytes(t)).hexdigest()


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def describe(t):
    return {"shape": list(t.shape), "dtype": dtype_name(t.dtype), "sha256": tensor_sha256(t)}
