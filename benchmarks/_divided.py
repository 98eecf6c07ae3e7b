"""What the distributed benchmark runs: blocks divided among processes, one solver or objective at a time.

Two problems, both with a shared `x` of some size and blocks that take a few numbers each.

Regressions on one encoder, for the general solver (`v1`, `v2`), on rows `r` of a pool all blocks draw from:

    g_i(x, y)    = 1/2 mean (y'phi(r) - t_i'psi(r))^2 + 1/20 |y|^2,      phi(r) = tanh(W r + b), x = (W, b)
    f_i(x, a, y) = (1 + a) 1/2 mean (y'phi(r) - t_i'psi(r))^2 - 1/2 a^2

Classification tasks with one perceptron, for the objectives (`MinMaxAUC`, `CompositionalAUC`): there `x` is
the encoder, and a head for every task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

import mmb
from mmb.auc import CompositionalAUC, Labels, MinMaxAUC, Objective, TaskSampler
from mmb.auc.sharded import ShardedObjective, owned_heads
from mmb.distributed import Shard
from mmb.models import mlp
from mmb.trees import tree_leaves

ROWS = 64  # rows a block sees in a step
POOL, INPUTS, FEATURES = 4096, 512, 32  # of the regressions: x has 16,416 numbers, a head 32
DATA_ROWS, DATA_INPUTS, HIDDEN = 512, 32, 64  # of the tasks: x has 2,112 + 65 m numbers, a copy 2,177
Batch = dict[str, Tensor]


class Case(Protocol):
    """One method on one number of blocks, as one of the processes sees it."""

    shares: list[int]  # blocks this process worked on, by step

    def sample(self, blocks_per_step: int) -> None:
        """Draw `blocks_per_step` blocks in every step from now on."""

    def step(self) -> None:
        """Draw, fetch batches, make a step."""

    def block_bytes(self) -> int:
        """Bytes of block state in this process."""


class SolverCase:
    """The general solver."""

    def __init__(self, hypergradient: mmb.Hypergradient, num_blocks: int, shard: Shard | None) -> None:
        self.num_blocks, self.shard, self.shares = num_blocks, shard, []
        same = torch.Generator().manual_seed(0)
        self.rows = torch.randn(POOL, INPUTS, generator=same)
        self.features = torch.tanh(self.rows @ torch.randn(INPUTS, FEATURES, generator=same) / INPUTS**0.5)
        weight = torch.randn(FEATURES, INPUTS, generator=same) / INPUTS**0.5
        self.start, own = (0, num_blocks) if self.shard is None else (self.shard.start, len(self.shard))
        self.draws = torch.Generator().manual_seed(1 + self.start)
        self.teachers = torch.randn(own, FEATURES, generator=self.draws)
        problem = mmb.Problem(upper=upper, lower=lower, num_blocks=num_blocks)
        self.solver = mmb.Solver(problem, hypergradient, lr=1e-3, lr_dual=0.1, lr_lower=0.1, shard=self.shard)
        x = {"weight": weight, "bias": torch.zeros(FEATURES)}
        self.state = self.solver.init(x, dual=torch.zeros(own), lower=torch.zeros(own, FEATURES))

    def sample(self, blocks_per_step: int) -> None:
        self.sampler = iter(mmb.BlockSampler(self.num_blocks, blocks_per_step))  # the same in every process

    def step(self) -> None:
        drawn = next(self.sampler)
        blocks = drawn if self.shard is None else self.shard.own(drawn)
        self.shares.append(len(blocks))
        self.solver.step(self.state, blocks, self._batch(blocks), self._batch(blocks))

    def block_bytes(self) -> int:
        state = self.state
        leaves = tree_leaves([state.dual, state.lower, state.memory, state.last_visit])
        return sum(leaf.numel() * leaf.element_size() for leaf in leaves)

    def _batch(self, blocks: Tensor) -> Batch:
        rows = torch.randint(POOL, (len(blocks), ROWS), generator=self.draws)
        teachers = self.teachers.index_select(0, blocks - self.start).unsqueeze(2)
        return {"rows": self.rows[rows], "targets": (self.features[rows] @ teachers).squeeze(2)}


class ObjectiveCase:
    """An objective on task-sampled batches, and SGD."""

    def __init__(self, compositional: bool, num_blocks: int, shard: Shard | None) -> None:
        self.shares, self.compositional = [], compositional
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(DATA_ROWS, DATA_INPUTS, generator=generator)
        self.labels = Labels(torch.randint(2, (DATA_ROWS, num_blocks), dtype=torch.int8, generator=generator))
        torch.manual_seed(0)  # the start of the model
        self.model = mlp(DATA_INPUTS, [HIDDEN], num_blocks)
        part = self.model if shard is None or not compositional else owned_heads(self.model, shard)

        def make(labels: Labels) -> Objective:
            return CompositionalAUC(labels, part) if compositional else MinMaxAUC(labels)

        whole = self.labels
        self.objective = make(whole) if shard is None else ShardedObjective(whole, make, shard.group)
        self.optimizer = torch.optim.SGD([*self.model.parameters(), *self.objective.parameters()], lr=1e-3)

    def sample(self, blocks_per_step: int) -> None:
        sampler = TaskSampler(
            self.labels, blocks_per_step, ROWS, independent_lower=self.compositional, steps_per_epoch=10**6
        )
        self.sampler = iter(sampler)

    def step(self) -> None:
        draw = self.objective.share(next(self.sampler))
        self.shares.append(len(draw.tasks))
        self.optimizer.zero_grad()
        self.objective.backward(self.model, draw.batch(self.inputs))
        self.optimizer.step()

    def block_bytes(self) -> int:
        return sum(value.numel() * value.element_size() for value in self.objective.state_dict().values())


class AllReduce:
    """Only an all-reduce of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.shares, self.tensor = [], torch.zeros(size // 4)

    def sample(self, blocks_per_step: int) -> None:
        pass

    def step(self) -> None:
        dist.all_reduce(self.tensor)

    def block_bytes(self) -> int:
        return 0


CASES: dict[str, Callable[[int, Shard | None], Case]] = {
    "Solver, v1": lambda m, shard: SolverCase(mmb.MomentumHessian(beta=0.2, initial=2.0), m, shard),
    "Solver, v2": lambda m, shard: SolverCase(mmb.QuadraticSGD(lr=0.3), m, shard),
    "MinMaxAUC": lambda m, shard: ObjectiveCase(False, m, shard),
    "CompositionalAUC": lambda m, shard: ObjectiveCase(True, m, shard),
}


def _loss(x: Any, head: Tensor, batch: Batch) -> Tensor:
    hidden = torch.tanh(batch["rows"] @ x["weight"].mT + x["bias"])
    return 0.5 * (hidden @ head - batch["targets"]).square().mean()


def upper(x: Any, dual: Tensor, head: Tensor, batch: Batch) -> Tensor:
    """`f` of one block."""
    return (1 + dual) * _loss(x, head, batch) - 0.5 * dual**2


def lower(x: Any, head: Tensor, batch: Batch) -> Tensor:
    """`g` of one block."""
    return _loss(x, head, batch) + 0.05 * head @ head
