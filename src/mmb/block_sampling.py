"""Which blocks a step touches, and which of their batches."""

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


class BatchOrder:
    """Which of its fixed batches a block takes: each once, in random order, before any returns.

    Variance reduction with [`Saga`][mmb.Saga] knows all batches of a block after the fewest visits this way.
    `state_dict` and `load_state_dict` are as those of [`BlockSampler`][mmb.BlockSampler].

    Args:
        num_blocks: `m`.
        batches: Into how many batches the data of every block are cut.
        generator: Source of randomness, or a seed for one.

    Raises:
        ValueError: If a number is out of its range.
    """

    def __init__(self, num_blocks: int, batches: int, generator: torch.Generator | int = 0) -> None:
        check_whole("num_blocks", num_blocks, 1)
        check_whole("batches", batches, 1)
        if not isinstance(generator, torch.Generator):
            generator = torch.Generator().manual_seed(generator)
        self.generator = generator
        self._order = self._shuffled(num_blocks, batches)
        self._visits = torch.zeros(num_blocks, dtype=torch.long, device=generator.device)

    def __call__(self, blocks: Tensor) -> Tensor:
        """Numbers of the batches that these blocks, all different, take next: a LongTensor [k]."""
        own = blocks.to(self._order.device)
        place = self._visits[own] % self._order.shape[1]
        again = own[place == 0]  # new, or through
        self._order[again] = self._shuffled(len(again), self._order.shape[1])
        self._visits[own] += 1
        return self._order[own, place].to(blocks.device)

    def state_dict(self) -> dict[str, Any]:
        """What it takes to continue the same sequence of numbers."""
        return {
            "generator": self.generator.get_state(),
            "order": self._order.clone(),
            "visits": self._visits.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the sequence of numbers of the one that gave `state`."""
        self.generator.set_state(state["generator"])
        self._order.copy_(state["order"])
        self._visits.copy_(state["visits"])

    def _shuffled(self, rows: int, batches: int) -> Tensor:
        draws = torch.rand(rows, batches, generator=self.generator, device=self.generator.device)
        return draws.argsort(1)
