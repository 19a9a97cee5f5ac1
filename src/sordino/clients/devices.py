"""Where a model is trained, by the name that PyTorch has for it. Noise is drawn on the processor wherever that is."""

from __future__ import annotations

import torch

from sordino.errors import BadInput, in_short


def device(name: str) -> torch.device:
    """The device of this name, tried out; one sentence if this machine has none."""
    try:
        found = torch.device(name)
        torch.zeros(1, device=found).add_(1.0).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise BadInput(f"device {name!r} cannot be used here ({in_short(error)}); use cpu.") from None
    return found


def generator_of(device: torch.device) -> torch.Generator:
    """The global generator that layers on this device draw from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    if device.type == "mps":
        return torch.mps._get_default_mps_generator()
    return torch.default_generator
