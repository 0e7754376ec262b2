"""What Megatron-LM takes from Transformer Engine, in plain torch: grouped experts, latent attention, fused Adam's state.

Names and shapes of parameters, and the fields of the optimizer's state, are Transformer Engine's: they decide which keys
Megatron asks a checkpoint for. Speed does not matter here.
"""

import functools

import torch
from torch.distributed.tensor import DTensor


def install():
    """Before Megatron builds a model."""
    _use_grouped_experts()
    _use_fused_adam()
    _let_half_precision_runs_take_weights_only()


class _GroupedLinear(torch.nn.Module):
    """One matrix an expert, `weight0`, `weight1`, …; rows arrive sorted by expert."""

    def __init__(self, num_gemms, input_size, output_size, *, config, init_method, **_):
        super().__init__()
        for expert in range(num_gemms):
            weight = torch.nn.Parameter(
                torch.empty(output_size, input_size, dtype=config.params_dtype, device=torch.cuda.current_device()))
            init_method(weight)
            # Megatron tells by this which parameters are replicated over the expert's own group only.
            weight.allreduce = config.expert_model_parallel_size == 1
            setattr(self, f"weight{expert}", weight)

    def forward(self, rows, rows_per_expert):
        parts = rows.split(list(rows_per_expert))
        outputs = [part @ getattr(self, f"weight{expert}").t() for expert, part in enumerate(parts)]
        return torch.cat(outputs), None


# Megatron-FSDP recognises a grouped layer by the name of its class.
_Column = type("TEColumnParallelGroupedLinear", (_GroupedLinear,), {})
_Row = type("TERowParallelGroupedLinear", (_GroupedLinear,), {})


def _use_grouped_experts():
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.transformer.moe.experts import GroupedMLPSubmodules, TEGroupedMLP

    sequential = LocalSpecProvider.grouped_mlp_modules

    def grouped_mlp_modules(self, moe_use_grouped_gemm):
        if not moe_use_grouped_gemm:
            return sequential(self, moe_use_grouped_gemm)
        return functools.partial(TEGroupedMLP, submodules=GroupedMLPSubmodules(linear_fc1=_Column, linear_fc2=_Row))

    LocalSpecProvider.grouped_mlp_modules = grouped_mlp_modules


class LatentAttention(torch.nn.Module):
    """Causal attention whose values have another width than its queries and keys."""

    def __init__(self, config, layer_number, softmax_scale, **_):
        super().__init__()
        self.scale = softmax_scale

    def forward(self, query, key, value, attention_mask, **_):
        query, key, value = (t.permute(1, 2, 0, 3) for t in (query, key, value))  # [batch, head, token, channel]
        scores = (query @ key.transpose(-1, -2) * self.scale).float().masked_fill(attention_mask, float("-inf"))
        return (scores.softmax(-1).to(value.dtype) @ value).permute(2, 0, 1, 3).flatten(2)


class FusedAdam(torch.optim.Optimizer):
    """AdamW with moments for every parameter, also where this rank's part of it is empty, and one `step` a group."""

    def __init__(self, params, lr, betas, eps, weight_decay, bias_correction=True, adam_w_mode=True, **_):
        if not adam_w_mode:
            raise ValueError("only decoupled weight decay is written down here")
        super().__init__(params, dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps,
                                      weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if group["params"]:
                group["step"] = group.get("step", 0) + 1
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["exp_avg"] = torch.zeros_like(param.detach())
                    state["exp_avg_sq"] = torch.zeros_like(param.detach())
                if param.grad is not None:
                    self._update(group, *(_local(t) for t in (param, param.grad, state["exp_avg"], state["exp_avg_sq"])))

    @staticmethod
    def _update(group, param, grad, mean, square):
        beta1, beta2 = group["betas"]
        mean.lerp_(grad.to(mean.dtype), 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        mean_hat = mean / (1 - beta1 ** group["step"])
        square_hat = square / (1 - beta2 ** group["step"])
        param.mul_(1 - group["lr"] * group["weight_decay"])
        param.addcdiv_(mean_hat, square_hat.sqrt_().add_(group["eps"]), value=-group["lr"])


def _local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _use_fused_adam():
    from megatron.core import optimizer
    from megatron.core.optimizer import distrib_optimizer

    optimizer.Adam = distrib_optimizer.Adam = FusedAdam
    optimizer.USING_PYTORCH_OPTIMIZER = False
    distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_TE_OPTIMIZER = True


def _let_half_precision_runs_take_weights_only():
    """Megatron of core_v0.19.0 ends `--finetune --bf16` under Megatron-FSDP with NotImplementedError, after it has read the
    weights: it would now copy them to the main weights. They are the main weights there, so nothing is left to do."""
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    copy = DistributedOptimizer._copy_model_params_to_main_params

    def copy_unless_fsdp(self, state_dict=None):
        if not self.ddp_config.use_megatron_fsdp:
            copy(self, state_dict)

    DistributedOptimizer._copy_model_params_to_main_params = copy_unless_fsdp
