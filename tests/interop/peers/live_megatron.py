"""Imports real Megatron-Core, of the folder on Python's path, as peers that run it do: in the process whose forks they are."""
import os

# Megatron-Core reads them while it is imported.
os.environ.update(CUDA_DEVICE_MAX_CONNECTIONS="1", TORCH_CUDA_ARCH_LIST="9.0")

import no_gpu

no_gpu.install()
import megatron.core.distributed
import megatron.core.models.gpt.gpt_layer_specs
import megatron.core.optimizer
import megatron.core.transformer.multi_latent_attention
