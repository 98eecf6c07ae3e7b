"""Which blocks a step touches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class BlockSampler:
    """Draws `blocks_per_step` different blocks uniformly, at a cost that does not grow with `m`.

    Args:
        num_blocks: `m`.
        blocks_per_step: `|I|`, between 1 and `m`; `m` gives all blocks in order.
        generator: Source of randomness; None makes one of its own from `seed`.
        seed: Seed of the generator made when none is passed.
    """

    def __init__(
        self, num_blocks: int, blocks_per_step: int, generator: torch.Generator | None = None, seed: int = 0
    ) -> None:
        if type(num_blocks) is not int or num_blocks < 1:
            raise ValueError(f"num_blocks: expected a whole number of at least 1, got {num_blocks!r}")
        if type(blocks_per_step) is not int or not 1 <= blocks_per_step <= num_blocks:
            raise ValueError(
                f"blocks_per_step: expected between 1 and num_blocks={num_blocks}, got {blocks_per_step!r}"
            )
        self.num_blocks = num_blocks
        self.blocks_per_step = blocks_per_step
        self.generator = torch.Generator().manual_seed(seed) if generator is None else generator

    def __call__(self) -> Tensor:
        """Draw the blocks of one step: a LongTensor of `blocks_per_step` different numbers."""
        m, k, generator = self.num_blocks, self.blocks_per_step, self.generator
        if k == m:
            return torch.arange(m, device=generator.device)
        if k * k >= m:
            return torch.randperm(m, generator=generator, device=generator.device)[:k]
        while True:  # draws with a repetition are rare here, and rejecting them whole keeps the draw uniform
            blocks = torch.randint(m, (k,), generator=generator, device=generator.device)
            if torch.unique(blocks).numel() == k:
                return blocks

    def state_dict(self) -> dict[str, Any]:
        """What it takes to continue the same sequence of draws."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the sequence of draws another sampler was in."""
        self.generator.set_state(state["generator"])
