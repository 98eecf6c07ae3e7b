"""Random permutations in little memory."""

import torch
from torch import Tensor


def permutation(count: int, generator: torch.Generator) -> Tensor:
    """What `torch.randperm` draws on the generator's device; as int32 on the host, where that is the same."""
    small = generator.device.type == "cpu" and count < 1 << 31
    kind = torch.int32 if small else torch.int64
    return torch.randperm(count, generator=generator, device=generator.device, dtype=kind)
