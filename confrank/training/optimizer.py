"""The optimizer of a run, ready to be captured: its state exists before the first step."""

from typing import Any

import torch
from torch import Tensor, nn

from confrank.config import RunConfig


def optimizer_of(model: nn.Module, config: RunConfig, rate: Tensor) -> torch.optim.Optimizer:
    """The optimizer, with its state at zero as before the first step, in tensors that are never replaced."""
    optimizer: torch.optim.Optimizer
    settings: dict[str, Any] = {"lr": rate, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), capturable=rate.device.type == "cuda", **settings)
    else:
        optimizer = torch.optim.SGD(model.parameters(), momentum=config.momentum, **settings)
    for parameter in model.parameters():
        if config.optimizer == "adamw":
            step = torch.zeros((), dtype=torch.float32, device=parameter.device)
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[parameter] = {"step": step, **moments}
        else:
            optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
    return optimizer
