"""Checks of what users pass in; every message names the argument, what was got and what was expected."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmb.distributed import Shard
from mmb.hypergradients import Hypergradient
from mmb.problem import Problem
from mmb.state import State
from mmb.trees import Tree, tree_leaves, tree_map


def check_solver(
    problem: Problem,
    hypergradient: Hypergradient | None,
    rates: dict[str, Any],
    z_start: str,
    optimizer: Any,
    inner_steps: int,
    check_every: int,
) -> None:
    """Check the arguments of `mmb.Solver`."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem: expected an mmb.Problem, got {type(problem).__name__}")
    if problem.lower is not None and not isinstance(hypergradient, Hypergradient):
        raise TypeError(
            f"hypergradient: the problem has a lower level, so expected an estimator such as "
            f"mmb.MomentumHessian(beta=0.9) or mmb.QuadraticSGD(lr=0.1), got {hypergradient!r}"
        )
    if problem.lower is not None and rates["lr_lower"] is None:
        raise ValueError("lr_lower: the problem has a lower level, so expected a step size for it, got None")
    if (rates["lr"] is None) == (optimizer is None):
        raise ValueError(
            "lr, optimizer: expected exactly one of them: lr for the built-in momentum, or optimizer for a "
            f"torch optimizer that has its own; got lr={rates['lr']!r} and optimizer={optimizer!r}"
        )
    if optimizer is not None and not callable(optimizer):
        raise TypeError(f"optimizer: expected a function of a list of tensors, got {optimizer!r}")
    for name, rate in rates.items():
        if callable(rate) or (rate is None and name != "momentum"):
            continue
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise ValueError(f"{name}: expected a positive number or a function of the step, got {rate!r}")
    if not callable(rates["momentum"]) and rates["momentum"] > 1:
        raise ValueError(
            f"momentum: expected the weight of the newest estimate, in (0, 1], got {rates['momentum']!r}"
        )
    if z_start not in ("zero", "estimate"):
        raise ValueError(f'z_start: expected "zero" or "estimate", got {z_start!r}')
    if isinstance(inner_steps, bool) or not isinstance(inner_steps, int) or inner_steps < 1:
        raise ValueError(f"inner_steps: expected a whole number of at least 1, got {inner_steps!r}")
    if isinstance(check_every, bool) or not isinstance(check_every, int) or check_every < 0:
        raise ValueError(f"check_every: expected a whole number of at least 0, got {check_every!r}")


def check_start(problem: Problem, x0: Tree, dual: Tree, lower: Tree, lr_dual: Any, num_own: int) -> None:
    """Check the arguments of `mmb.Solver.init`; `num_own` is the number of this process's blocks."""
    _check_tensors("x0", x0)
    if (lower is None) != (problem.lower is None):
        raise ValueError(
            "lower: expected starting values, since the problem has a lower level; got None"
            if lower is None
            else "lower: the problem has no lower level (lower=None), so expected None here too"
        )
    if dual is not None and lr_dual is None:
        raise ValueError("lr_dual: there are duals, so expected a step size for them, got None")
    for name, tree in (("dual", dual), ("lower", lower)):
        if tree is not None:
            _check_tensors(name, tree)
            meaning = "num_blocks" if num_own == problem.num_blocks else "len(shard)"
            _check_leading_axis(name, tree, num_own, meaning)


def check_step(
    problem: Problem,
    shard: Shard | None,
    state: State,
    blocks: Tensor,
    upper_batch: Any,
    lower_batch: Any,
    weights: Tensor | None,
) -> None:
    """Check the arguments of `mmb.Solver.step`: block numbers on a GPU are waited for."""
    if not isinstance(blocks, Tensor) or blocks.dtype != torch.long or blocks.ndim != 1:
        got = f"{blocks.dtype} of shape {tuple(blocks.shape)}" if isinstance(blocks, Tensor) else repr(blocks)
        raise ValueError(f"blocks: expected a LongTensor with one axis, got {got}")
    if len(blocks) == 0 and shard is None:
        raise ValueError("blocks: expected at least one block, got none")
    if not torch.compiler.is_compiling():
        first, end = (0, problem.num_blocks) if shard is None else (shard.start, shard.stop)
        outside = blocks[(blocks < first) | (blocks >= end)]
        if len(outside):
            owned = "" if shard is None else ", which this process owns"
            raise ValueError(
                f"blocks: expected numbers from {first} to {end - 1}{owned}, got {outside[:5].tolist()}"
            )
        numbers, counts = torch.unique(blocks, return_counts=True)
        if len(numbers) < len(blocks):
            repeated = numbers[counts > 1][:5].tolist()
            raise ValueError(
                f"blocks: expected different blocks, got {repeated} more than once; use blocks.unique(), or "
                "mmb.BlockSampler, which draws without repetition"
            )
    _check_leading_axis("upper_batch", upper_batch, len(blocks), "len(blocks)")
    _check_leading_axis("lower_batch", lower_batch, len(blocks), "len(blocks)")
    if weights is not None and not isinstance(weights, Tensor):
        raise TypeError(f"weights: expected a tensor or None, got {type(weights).__name__}")
    if weights is not None and weights.shape != blocks.shape:
        raise ValueError(
            f"weights: expected one per sampled block, {tuple(blocks.shape)}, got {tuple(weights.shape)}"
        )
    if weights is not None and weights.device.type == "cpu" and not (weights > 0).all():
        raise ValueError(f"weights: expected positive numbers, got {weights.tolist()}")
    if state.dual is None and state.lower is None and upper_batch is None:
        raise ValueError("upper_batch: nothing tells the blocks apart; expected a batch, got None")


def check_kept(name: str, expected: Tree, got: Tree) -> Tree:
    """Check that a user's function kept names, shapes and dtypes; returns what it gave, in the same order."""
    try:
        ordered = tree_map(lambda _, new: new, expected, got)
    except ValueError as error:
        raise ValueError(f"{name}: expected it to keep the names of what it is given: {error}") from error
    shapes, returned = (
        [(tuple(leaf.shape[1:]), str(leaf.dtype)) for leaf in tree_leaves(tree)]
        for tree in (expected, ordered)
    )
    if shapes != returned:
        raise ValueError(f"{name}: expected it to keep the shape of one block, {shapes}, got {returned}")
    return ordered


def _check_tensors(name: str, tree: Tree) -> None:
    leaves = tree_leaves(tree)
    if not leaves or not all(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in leaves):
        got = [str(leaf.dtype) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves]
        raise TypeError(f"{name}: expected a floating-point tensor or a dict of such, got {got}")
    for leaf in leaves:
        if not torch.isfinite(leaf).all():
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity in it")


def _check_leading_axis(name: str, tree: Any, size: int, meaning: str) -> None:
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            if leaf.ndim == 0 or leaf.shape[0] != size:
                raise ValueError(
                    f"{name}: expected a leading axis of {meaning} = {size}, got shape {tuple(leaf.shape)}"
                )
        elif tree is not None:
            raise TypeError(
                f"{name}: expected tensors in nested dicts, lists or tuples, got {type(leaf).__name__}; "
                "what all blocks share belongs in a closure"
            )
