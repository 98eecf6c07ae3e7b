"""Which blocks a step touches."""

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor

from mmb._numbers import check_whole
from mmb._renamed import renamed_arguments


class BlockSampler:
    """An endless, resumable source of blocks: each draw gives `blocks_per_step` different ones, uniformly.

    A draw is a LongTensor `[blocks_per_step]`; its cost does not grow with `m`. Iterating again continues
    the sequence of draws. `state_dict` taken between two draws and loaded into a sampler made with the same
    arguments continues bit for bit.

    Args:
        num_blocks: `m`.
        blocks_per_step: `|I|`, between 1 and `m`; `m` gives all blocks in order.
        generator: Source of randomness, or a seed for one.

    Raises:
        ValueError: If a number is out of its range.
    """

    @renamed_arguments(seed="generator, which also takes a seed")
    def __init__(self, num_blocks: int, blocks_per_step: int, generator: torch.Generator | int = 0) -> None:
        check_whole("num_blocks", num_blocks, 1)
        check_whole("blocks_per_step", blocks_per_step, 1)
        if blocks_per_step > num_blocks:
            raise ValueError(
                f"blocks_per_step: expected at most num_blocks = {num_blocks}, got {blocks_per_step}"
            )
        if not isinstance(generator, torch.Generator):
            generator = torch.Generator().manual_seed(generator)
        self.num_blocks = num_blocks
        self.blocks_per_step = blocks_per_step
        self.generator = generator

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield self._draw()

    def __call__(self) -> NoReturn:
        """Samplers are iterated."""
        raise TypeError("BlockSampler: expected to be iterated, not called; write next(iter(sampler))")

    def state_dict(self) -> dict[str, Any]:
        """What it takes to continue the same sequence of draws."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the sequence of draws of the sampler that gave `state`."""
        self.generator.set_state(state["generator"])

    def _draw(self) -> Tensor:
        m, k, generator = self.num_blocks, self.blocks_per_step, self.generator
        if k == m:
            return torch.arange(m, device=generator.device)
        if k * k >= m:
            return torch.randperm(m, generator=generator, device=generator.device)[:k]
        while True:  # draws with a repetition are rare here; rejecting the whole draw keeps it uniform
            blocks = torch.randint(m, (k,), generator=generator, device=generator.device)
            if torch.unique(blocks).numel() == k:
                return blocks
