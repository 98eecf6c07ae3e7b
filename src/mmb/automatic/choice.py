"""From what a probe finds to a solver."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmb import validation
from mmb._numbers import check_whole
from mmb.automatic.adaptive_solver import AdaptiveSolver
from mmb.automatic.probe import Findings, Probe
from mmb.block_sampling import BlockSampler
from mmb.hypergradients import Hypergradient, MomentumHessian, QuadraticSGD
from mmb.modules import as_variable
from mmb.problem import Problem
from mmb.state import State
from mmb.trees import Tree

SMALL_LOWER = 32  # lower variables of a block up to which a Hessian per block is remembered
UPDATES = 3  # of a block at each visit where visits are rare; at its first, at most, where it starts far away
MISLED = 0.75  # relative error of the first estimates above which blocks catch up at their first visit
RARELY_MISLED = 0.3  # the same where visits are rare, so that such an error stays long
SLOW = 0.5  # least curvature of duals, relative to the largest, below which x waits for them
PATIENCE = 20.0  # how many times slower x may be for blocks to follow it; beyond, they are updated more often


def auto(
    problem: Problem,
    x0: Tree,
    *,
    dual: Tree = None,
    lower: Tree = None,
    batches: Callable[[Tensor], tuple[Any, ...]],
    blocks_per_step: int,
    probes: int = 4,
    generator: torch.Generator | None = None,
    print: Callable[[str], None] | None = lambda line: print(line, file=sys.stderr),
    **options: Any,
) -> tuple[AdaptiveSolver, State]:
    """A solver that needs no step sizes, and its state.

    Looks at a few batches, chooses the estimator (Algorithm 1 for small lower problems, Algorithm 2 else) and
    where to start with each step size. The solver changes them while it runs, and goes back to an earlier
    state instead of diverging. Where much of the gradient passes through lower variables, or duals that
    follow slowly, `x` has to wait for them; where blocks are visited too rarely for that, they are updated
    twice or three times at each visit instead (`inner_steps`). Where blocks start so far from where they
    belong that first estimates mislead, they are updated up to three times at their first visit; lower
    variables that start very far away begin with a Newton step. With `variance_reduction` or a `shard`, `x`
    waits, but nothing else of this is done.
    Then run it with [`mmb.solve`][mmb.solve].

    Args:
        problem: The problem.
        x0: The shared variable to start from: a tensor, a dict of tensors, or a module.
        dual: Duals of all blocks, leading axis `m`; None without duals.
        lower: Lower variables of all blocks, likewise; None without lower level.
        batches: What `mmb.solve` takes: from blocks to their batches.
        blocks_per_step: How many blocks `batches` gets at a time, here and in the run.
        probes: How many draws of blocks and batches to look at, at least 2.
        generator: Draws the blocks to look at; None makes one, seeded with 0.
        print: Takes the line that says what was found; None is silent.
        **options: More options of `Solver`, such as `check_every`; step sizes among them replace those found.

    Returns:
        The solver and the state.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If a number is out of range, or `f` or `g` has not the curvature that the problem needs.
        mmb.BrokenStepError: If NaN or infinity is met.
    """
    _check(problem, generator, print, options)
    check_whole("probes", probes, 2)
    x0 = as_variable(x0)
    validation.check_start(problem, x0, dual, lower, lr_dual=1.0, num_own=problem.num_blocks)
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    sampler = iter(BlockSampler(problem.num_blocks, blocks_per_step, generator))
    draws = []
    for _ in range(probes):
        blocks = next(sampler)
        found = batches(blocks)
        validation.check_batches(found)
        validation.check_block_batches(problem, len(blocks), *found[:2])
        draws.append((blocks, found[0], found[1]))
    findings = Probe(problem, x0, dual, lower, draws, generator).look()
    once = options.get("inner_steps") == 1
    once = once or any(options.get(name) is not None for name in ("variance_reduction", "shard"))
    settings = _settings(findings, blocks_per_step / problem.num_blocks, once) | options
    solver = AdaptiveSolver(problem, **settings)
    solver.findings = findings
    if print is not None:
        print(_line(findings, settings))
    return solver, solver.init(x0, dual=dual, lower=lower, generator=generator)


def _check(problem: Any, generator: Any, print: Any, options: dict[str, Any]) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"problem: expected an mmb.Problem, got {type(problem).__name__}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator: expected a torch.Generator or None, got {generator!r}; with a seed: "
            "torch.Generator().manual_seed(0)"
        )
    if print is not None and not callable(print):
        raise TypeError(f"print: expected a function of a line, or None to be silent, got {print!r}")
    if options.get("optimizer") is not None:
        raise ValueError(
            "optimizer: expected none, since auto finds the step size of x itself; to move x by a torch "
            "optimizer, make an mmb.Solver with it"
        )


def _settings(found: Findings, share: float, once: bool) -> dict[str, Any]:
    """Arguments of the solver; `once`: blocks cannot be updated more than once at a visit."""
    lr_lower = 0.9 / found.lower_smoothness if found.lower_size else None
    lr_dual = 0.9 / found.dual_smoothness if found.dual_smoothness else None
    memory, slower, most, updates, first_updates = 0.05, 1.0, 2.0, 1, 1
    below = found.lower_convexity / found.lower_smoothness if found.lower_size else 1.0
    beside = found.dual_concavity / found.dual_smoothness if found.dual_smoothness else 1.0
    contraction = 0.9 * min(below, beside)  # the share of the distance that an update makes at least
    follow = found.lower_size > 0 or beside < SLOW
    if follow and found.indirect > found.smoothness / 2:  # x waits for what follows it
        following = share * min(0.5, max(0.1, contraction))  # of the distance to where they belong, in a step
        waiting = max(1.0, found.indirect / (found.smoothness or found.indirect) / following)
        if waiting > PATIENCE and not once:  # or they catch up at every visit
            updates = _until_near(contraction)
        else:
            memory, slower = min(memory, following), 1 / waiting
            most = 2.0 if beside < SLOW else 2.0 / slower  # agreement means little while duals lag
    if found.start_error > (MISLED if updates == 1 else RARELY_MISLED) and not once:
        first_updates = _until_near(contraction)
    return {
        "hypergradient": _hypergradient(found),
        "lr": slower / (found.smoothness or found.gradient or 1.0),  # a first step of length 1 if f is linear
        "lr_dual": lr_dual,
        "lr_lower": lr_lower,
        "beta": 0.5,
        "z_start": "estimate",
        "inner_steps": updates,
        "first_inner_steps": max(updates, first_updates),
        "memory": memory,
        "largest_scale": most,
        "first_scale": 1 / (1 + 4 * (found.noise / max(found.gradient, 1e-300)) ** 2),
    }


def _until_near(contraction: float) -> int:
    """Updates after which the last is made from a tenth of the first's distance; at most `UPDATES`."""
    return math.ceil(min(UPDATES, 1 + math.log(0.1) / math.log1p(-contraction)))


def _hypergradient(found: Findings) -> Hypergradient | None:
    if not found.lower_size:
        return None
    if found.lower_size <= SMALL_LOWER:
        return MomentumHessian(beta=0.9, initial=found.lower_smoothness)
    return QuadraticSGD(lr=0.9 / found.lower_smoothness)


def _line(found: Findings, settings: dict[str, Any]) -> str:
    estimator = settings["hypergradient"]
    parts = [
        f"gradient {found.gradient:.2g} with noise {found.noise:.2g}",
        f"curvature {found.smoothness:.2g} ({found.indirect:.2g} indirect)",
    ]
    if found.dual_smoothness:
        parts.append(f"{found.dual_concavity:.2g} to {found.dual_smoothness:.2g} in the duals")
    if found.lower_size:
        parts.append(f"{found.lower_convexity:.2g} to {found.lower_smoothness:.2g} in the lower variables")
    name = type(estimator).__name__ if estimator is not None else "no hypergradient"
    rates = ", ".join(
        f"{name} {settings[name]:.2g}" for name in ("lr", "lr_dual", "lr_lower") if settings[name]
    )
    updates, first = settings["inner_steps"], settings["first_inner_steps"]
    often = "" if updates == 1 else f", {updates} updates of a block at each visit"
    often += "" if first == updates else f", {first} updates at its first visit"
    still = (
        ""
        if found.gradient
        else "; at a gradient of zero x stays where it is: start elsewhere if it should move"
    )
    return f"auto: found {', '.join(parts)}; starts with {name}, {rates}{often}{still}"
