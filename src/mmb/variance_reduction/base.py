"""What every kind of variance reduction is: a memory, a rule for derivatives, and a mean over all blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from mmb.oracles import Oracles
from mmb.trees import Tree, gather, scatter_, tree_leaves, tree_map, where_blocks
from mmb.variance_reduction.calls import zeros

Samples = tuple[Tensor, Tensor]  # numbers of the sampled blocks' batches of f and of g, [k] each
Memory = dict[str, Any]


class VarianceReduction(ABC):
    r"""Replaces derivatives of batches by ones of smaller variance, and the mean over sampled blocks.

    $$
    \Delta = \bar\Delta + \frac{1}{|I_t|} \sum_{i \in I_t} (\Delta_i - \Delta_i^{old})
    $$

    where $\Delta_i^{old}$ is the hypergradient of block `i` at its last visit, and $\bar\Delta$ the mean of
    these over all blocks visited so far. At a block's first visit its term is $\Delta_i - \bar\Delta$.
    """

    def init(self, calls: tuple[str, ...], blocks: int, x: Tree, dual: Tree, lower: Tree) -> Memory:
        """All that is remembered, before the first step.

        Args:
            calls: Names of the derivatives that a step asks for.
            blocks: How many blocks there are.
            x: The shared variable.
            dual: Duals of all blocks, or None.
            lower: Lower variables of all blocks, or None.
        """
        own_x = tree_map(lambda leaf: leaf.unsqueeze(0).expand(blocks, *leaf.shape), x)
        point = {"x": own_x, "dual": dual, "lower": lower}
        point = {name: part for name, part in point.items() if part is not None}
        return {
            "blocks": {
                "hypergradient": tree_map(torch.zeros_like, own_x),
                **self.block_memory({call: zeros(call, point) for call in calls}, point),
            },
            "batches": {
                call: tree_map(
                    lambda leaf, n=count: leaf.repeat_interleave(n, dim=0),
                    self.batch_memory(zeros(call, point)),
                )
                for call in calls
                if (count := self.batches(call))
            },
            "sum": tree_map(torch.zeros_like, x),
            "visited": tree_leaves(x)[0].new_zeros(()),
        }

    @abstractmethod
    def block_memory(self, calls: dict[str, Tree], point: dict[str, Tree]) -> Memory:
        """What is remembered of every block, from zeros of its derivatives and from its first point."""

    def batch_memory(self, call: Tree) -> Tree:
        """What is remembered of every batch of a block, from zeros of a derivative."""
        return {}

    def batches(self, call: str) -> int:
        """Into how many batches a block's data are divided, for a derivative; 0 if that does not matter."""
        return 0

    def before(self, raw: Oracles, past: Memory) -> Oracles | None:
        """The same batches at an earlier point, for kinds that look there again."""
        return None

    @abstractmethod
    def reduce(
        self, now: Tree, before: Tree, argument: Tree, block: Any, batch: Any, first: Tensor
    ) -> tuple[Tree, Any, Any]:
        """Reduce one derivative.

        Args:
            now: It, per block, from the batches.
            before: The same at the earlier point, or None.
            argument: What it was asked with, in addition to the point.
            block: Memory of the sampled blocks.
            batch: Memory of their batches.
            first: Whether this is the first visit to a block, [k].

        Returns:
            The reduced derivative, and the new memory of blocks and batches.
        """

    def gather(self, memory: Memory, blocks: Tensor, samples: Samples | None, first: Tensor) -> Memory:
        """What a step on these blocks and batches needs to know."""
        batches = {
            call: gather(rows, self._places(call, blocks, samples))
            for call, rows in memory["batches"].items()
        }
        mean = tree_map(lambda leaf: leaf / memory["visited"].clamp(min=1), memory["sum"])
        return {"blocks": gather(memory["blocks"], blocks), "batches": batches, "mean": mean, "first": first}

    def scatter_(self, memory: Memory, blocks: Tensor, samples: Samples | None, new: Memory) -> None:
        """Write back what a step has learned."""
        scatter_(memory["blocks"], blocks, new["blocks"])
        for call, rows in memory["batches"].items():
            scatter_(rows, self._places(call, blocks, samples), new["batches"][call])
        tree_map(lambda total, change: total.add_(change), memory["sum"], new["change"])
        memory["visited"].add_(new["first"].sum())

    def finish(self, raw: Oracles, hypergradient: Tree, past: Memory) -> tuple[Tree, Memory]:
        """The step's `Delta` from hypergradients per block, and what is to be remembered besides."""
        change = tree_map(torch.sub, hypergradient, past["blocks"]["hypergradient"])  # zero before the first
        corrected = tree_map(torch.add, change, past["mean"])
        terms = where_blocks(past["first"], hypergradient, corrected)
        return tree_map(lambda part: part.mean(0), terms), {
            "blocks": {"hypergradient": hypergradient},
            "change": tree_map(lambda part: part.sum(0), change),
            "first": past["first"],
        }

    def _places(self, call: str, blocks: Tensor, samples: Samples | None) -> Tensor:
        count = self.batches(call)
        if samples is None:
            return blocks * count
        return blocks * count + samples[0 if call.startswith("upper") else 1].to(blocks.device)
