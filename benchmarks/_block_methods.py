"""What the block-scaling benchmark compares: each method is made from a source of batches and a step size."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

import mmb
from _block_quadratics import DIM_X, DIM_Y, Gather, problem
from _peers import Betty, Schedule, TorchOpt, version

SAMPLED = 10
LR_LOWER = 0.3  # of every method; the lower Hessians have eigenvalues from 1 to about 5


class Contestant(Protocol):
    """One method on one problem."""

    x: Tensor

    def step(self) -> float | None:
        """Make a step; may return the seconds spent on preparing its batches."""


class Mmb:
    """The solver of this library on sampled blocks."""

    def __init__(
        self,
        gather: Gather,
        hypergradient: mmb.Hypergradient,
        lr: Schedule,
        sampled: int,
        compile: bool = False,
    ) -> None:
        num_blocks = len(gather.blocks.offset)
        self.gather, self.everything = gather, sampled >= num_blocks
        self.sampler = iter(mmb.BlockSampler(num_blocks, min(sampled, num_blocks)))
        self.solver = mmb.Solver(
            problem(num_blocks), hypergradient, lr=lr, lr_dual=0.5, lr_lower=LR_LOWER, compile=compile
        )
        if compile:  # each solver is compiled by itself, off the clock
            self.state = self._start(num_blocks)
            self.step()
        self.state = self._start(num_blocks)
        self.x = self.state.x

    def _start(self, num_blocks: int) -> mmb.State:
        lower = torch.zeros(num_blocks, DIM_Y)
        return self.solver.init(torch.zeros(DIM_X), dual=torch.zeros(num_blocks), lower=lower)

    def step(self) -> float:
        """Draw blocks, fetch their batches, make a step."""
        start = time.perf_counter()
        blocks = next(self.sampler)
        batch = self.gather(None if self.everything else blocks)
        aside = time.perf_counter() - start
        self.solver.step(self.state, blocks, batch, batch)
        return aside


def v1() -> mmb.Hypergradient:
    return mmb.MomentumHessian(beta=0.2, initial=2.0)


def v2() -> mmb.Hypergradient:
    return mmb.QuadraticSGD(lr=LR_LOWER)


@dataclass(frozen=True)
class Method:
    """A row of the tables."""

    name: str
    make: Callable[[Gather, Schedule], Contestant]
    sampled: int | None  # blocks per step, None for all
    needs: str | None = None  # a distribution

    @property
    def missing(self) -> bool:
        """Whether a peer that this needs is not installed."""
        return self.needs is not None and version(self.needs) is None


def _mmb(
    name: str, kind: Callable[[], mmb.Hypergradient], sampled: int | None, compile: bool = False
) -> Method:
    def make(gather: Gather, lr: Schedule) -> Contestant:
        return Mmb(gather, kind(), lr, len(gather.blocks.offset) if sampled is None else sampled, compile)

    return Method(name, make, sampled)


def _betty(stacked: bool, terms: int) -> Method:
    def make(gather: Gather, lr: Schedule) -> Contestant:
        return Betty(gather, lr=lr, lr_lower=LR_LOWER, terms=terms, stacked=stacked)

    name = f"Betty, {'one stacked Problem' if stacked else 'a Problem per block'}, Neumann {terms}"
    return Method(name, make, None, needs="betty-ml")


def _torchopt(stacked: bool) -> Method:
    def make(gather: Gather, lr: Schedule) -> Contestant:
        return TorchOpt(gather, lr=lr, lr_lower=LR_LOWER, iterations=10, stacked=stacked)

    name = f"TorchOpt, {'stacked' if stacked else 'loop over blocks'}, CG 10"
    return Method(name, make, None, needs="torchopt")


# With a Problem per block Betty gets its cheapest setting, its default of one term; when it has to converge
# it needs more.
V1, V2 = _mmb("mmb v1, 10 blocks", v1, SAMPLED), _mmb("mmb v2, 10 blocks", v2, SAMPLED)
V1_COMPILED = _mmb("mmb v1, 10 blocks, compiled", v1, SAMPLED, compile=True)
V2_COMPILED = _mmb("mmb v2, 10 blocks, compiled", v2, SAMPLED, compile=True)
V2_ALL = _mmb("mmb v2, all blocks", v2, None)
BETTY_EACH, BETTY_STACKED = _betty(False, 1), _betty(True, 10)
FLAT = [V1, V1_COMPILED, V2, V2_COMPILED]
TIMED = [*FLAT, V2_ALL, BETTY_EACH, BETTY_STACKED, _torchopt(False), _torchopt(True)]
RACED = [
    V1_COMPILED,
    V2_COMPILED,
    _mmb("mmb v2, 100 blocks, compiled", v2, 100, compile=True),
    _mmb("mmb v2, all blocks, compiled", v2, None, compile=True),
    V2_ALL,
    BETTY_STACKED,
    _torchopt(True),
]
