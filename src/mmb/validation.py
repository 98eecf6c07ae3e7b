"""Checks of what users pass in; every message names the argument, the value and what was expected."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from mmb._numbers import check_whole
from mmb.distributed import Shard
from mmb.hypergradients import Hypergradient
from mmb.problem import Problem
from mmb.state import State
from mmb.trees import Tree, tree_leaves, tree_map
from mmb.variance_reduction import VarianceReduction


def check_solver(
    problem: Problem,
    hypergradient: Hypergradient | None,
    rates: dict[str, Any],
    z_start: str,
    optimizer: Any,
    inner_steps: int,
    check_every: int,
    shard: Shard | None,
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
            "lr, optimizer: expected exactly one: lr for the built-in moving average, optimizer for a torch "
            f"optimizer; got lr={rates['lr']!r} and optimizer={optimizer!r}"
        )
    if optimizer is not None and not callable(optimizer):
        raise TypeError(f"optimizer: expected a function of a list of tensors, got {optimizer!r}")
    for name, rate in rates.items():
        if callable(rate) or (rate is None and name != "beta"):
            continue
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise ValueError(f"{name}: expected a positive number or a function of the step, got {rate!r}")
    if not callable(rates["beta"]) and rates["beta"] > 1:
        raise ValueError(
            f"beta: expected the weight of the newest estimate, in (0, 1], got {rates['beta']!r}"
        )
    if z_start not in ("zero", "estimate"):
        raise ValueError(f'z_start: expected "zero" or "estimate", got {z_start!r}')
    check_whole("inner_steps", inner_steps, 1)
    check_whole("check_every", check_every, 0)
    if shard is not None and not isinstance(shard, Shard):
        raise TypeError(f"shard: expected an mmb.distributed.Shard or None, got {shard!r}")
    if shard is not None and shard.num_blocks != problem.num_blocks:
        raise ValueError(
            f"shard: expected num_blocks = {problem.num_blocks}, as in the problem, got {shard.num_blocks}"
        )


def check_start(problem: Problem, x0: Tree, dual: Tree, lower: Tree, lr_dual: Any, num_own: int) -> None:
    """Check the arguments of `mmb.Solver.init`; `num_own` is the number of this process's blocks."""
    _check_tensors("x0", x0)
    if (lower is None) != (problem.lower is None):
        raise ValueError(
            "lower: expected starting values, since the problem has a lower level; got None"
            if lower is None
            else "lower: the problem has no lower level (lower=None), so expected None here too"
        )
    if dual is None and problem.project_dual is not None:
        raise ValueError("dual: the problem has a project_dual, so expected starting values, got None")
    _check_dual_rate(dual, lr_dual)
    for name, tree in (("dual", dual), ("lower", lower)):
        if tree is not None:
            _check_tensors(name, tree, tree_leaves(x0)[0].device)
            meaning = "num_blocks" if num_own == problem.num_blocks else "len(shard)"
            _check_leading_axis(name, tree, num_own, meaning)


def check_optimizer(made: Any) -> None:
    """Check what the function `optimizer` of `mmb.Solver` returned."""
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer: expected it to return a torch.optim.Optimizer, got {type(made).__name__}; give a "
            "function such as functools.partial(torch.optim.Adam, lr=1e-3)"
        )


def check_state(
    problem: Problem,
    state: State,
    optimizer: Any,
    lr_dual: Any,
    num_own: int,
    remembered: Iterable[str],
    reduction: str,
) -> None:
    """Check the state of `mmb.Solver.step`.

    `remembered` names what the solver's estimator remembers; `reduction` is `described` of its reduction.
    """
    made = _kind(state.optimizer, state.lower, len(state.last_visit), state.memory)
    own = _kind(optimizer, problem.lower, num_own, remembered)
    made["variance reduction"] = described(state.shared.get("reduction"), num_own)
    own["variance reduction"] = reduction
    for name, expected in own.items():
        if made[name] != expected:
            raise ValueError(
                f"state: made by a solver with {name} {made[name]}, expected {expected}; make it with this "
                "solver's init"
            )
    _check_dual_rate(state.dual, lr_dual)


def check_step(
    problem: Problem,
    shard: Shard | None,
    state: State,
    blocks: Tensor,
    upper_batch: Any,
    lower_batch: Any,
    weights: Tensor | None,
) -> None:
    """Check the arguments of `mmb.Solver.step`; waits for block numbers on a GPU."""
    if not isinstance(blocks, Tensor) or blocks.dtype != torch.long or blocks.ndim != 1:
        got = f"{blocks.dtype} of shape {tuple(blocks.shape)}" if isinstance(blocks, Tensor) else repr(blocks)
        raise ValueError(f"blocks: expected a LongTensor with one axis, got {got}")
    if len(blocks) == 0 and shard is None:
        raise ValueError("blocks: expected at least one block, got none")
    if not torch.compiler.is_compiling():
        first, end = (0, problem.num_blocks) if shard is None else (shard.start, shard.stop)
        numbers = blocks.tolist()
        if numbers and (min(numbers) < first or max(numbers) >= end):
            outside = [number for number in numbers if not first <= number < end]
            owned = "" if shard is None else ", which this process owns"
            raise ValueError(f"blocks: expected numbers from {first} to {end - 1}{owned}, got {outside[:5]}")
        if len(set(numbers)) < len(numbers):
            repeated = [number for number, times in Counter(numbers).items() if times > 1][:5]
            raise ValueError(
                f"blocks: expected different blocks, got {repeated} more than once; use blocks.unique(), or "
                "mmb.BlockSampler, which draws without repetition"
            )
    check_block_batches(problem, len(blocks), upper_batch, lower_batch)
    if weights is not None:
        if not isinstance(weights, Tensor):
            raise TypeError(f"weights: expected a tensor or None, got {type(weights).__name__}")
        if weights.shape != blocks.shape:
            raise ValueError(
                f"weights: expected one per sampled block, {tuple(blocks.shape)}, got {tuple(weights.shape)}"
            )
        if weights.device.type == "cpu" and not ((weights > 0) & weights.isfinite()).all():
            raise ValueError(f"weights: expected positive finite numbers, got {weights.tolist()}")
    if state.dual is None and state.lower is None and upper_batch is None:
        raise ValueError(
            "upper_batch: expected a batch, since without one the blocks do not differ; got None"
        )


def check_block_batches(problem: Problem, count: int, upper_batch: Any, lower_batch: Any) -> None:
    """Check that batches hold tensors with the sampled blocks as first axis."""
    _check_leading_axis("upper_batch", upper_batch, count, "len(blocks)")
    if problem.lower is None and lower_batch is not None and tree_leaves(lower_batch):
        raise ValueError(
            "lower_batch: the problem has no lower level, so expected None; put all that f needs in "
            "upper_batch, e.g. ((inputs, targets), None)"
        )
    _check_leading_axis("lower_batch", lower_batch, count, "len(blocks)")


def check_reduction(reduction: VarianceReduction | None, inner_steps: int, shard: Shard | None) -> None:
    """Check that nothing else stands against variance reduction."""
    if reduction is not None and (inner_steps > 1 or shard is not None):
        other = "inner_steps above 1" if inner_steps > 1 else "a shard"
        raise ValueError(f"variance_reduction: expected None with {other}, got {type(reduction).__name__}")


def check_samples(reduction: VarianceReduction | None, samples: Any, weights: Any, count: int) -> None:
    """Check the batch numbers of `mmb.Solver.step`; waits for those on a GPU."""
    if reduction is not None and weights is not None:
        raise ValueError("weights: expected None with variance_reduction, which weighs all blocks the same")
    needed = {name: 0 if reduction is None else reduction.batches(name) for name in ("upper", "lower")}
    if samples is None:
        if max(needed.values()) > 1:
            raise ValueError(
                "samples: expected the numbers of the blocks' batches of f and of g: variance_reduction has "
                f"{needed['upper']} and {needed['lower']} of them; got None"
            )
        return
    if not max(needed.values()):
        raise ValueError("samples: expected None without mmb.Saga, which alone tells batches apart")
    if not isinstance(samples, tuple) or len(samples) != 2:
        raise TypeError(f"samples: expected two tensors, for f and for g, got {samples!r}")
    for (name, most), numbers in zip(needed.items(), samples, strict=True):
        good = isinstance(numbers, Tensor) and numbers.dtype == torch.long and numbers.shape == (count,)
        if not good or not ((numbers >= 0) & (numbers < most)).all():
            raise ValueError(
                f"samples: expected one number from 0 to {most - 1} per block for {name}_batch, a LongTensor "
                f"[{count}], got {numbers!r}"
            )


def check_solve(sampler: Any, batches: Any, steps: Any, callbacks: Any) -> None:
    """Check the arguments of `mmb.solve`."""
    check_whole("steps", steps, 0)
    if not isinstance(sampler, Iterable) and not hasattr(sampler, "__getitem__"):
        raise TypeError(
            "sampler: expected an iterable of blocks such as mmb.BlockSampler(m, k), "
            f"got {sampler!r}; make a function a generator that yields blocks"
        )
    if not callable(batches):
        raise TypeError(f"batches: expected a function of the sampled blocks, got {batches!r}")
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(
            f"callbacks: expected a list of functions of state and info, got {callbacks!r}; put a single one "
            "in a list"
        )


def check_batches(found: Any) -> None:
    """Check what the function `batches` of `mmb.solve` returned."""
    if not isinstance(found, tuple) or len(found) not in (2, 3, 4):
        size = f" of {len(found)}" if isinstance(found, tuple) else ""
        raise TypeError(
            "batches: expected (upper_batch, lower_batch), perhaps with weights and samples after them, and "
            f"lower_batch None if there is no lower level; got {type(found).__name__}{size}"
        )


def check_kept(name: str, expected: Tree, got: Tree) -> Tree:
    """Return what a user's function of one block gave, in order, if it kept names, shapes and dtypes."""
    try:
        ordered = tree_map(lambda _, new: new, expected, got)
    except ValueError as error:
        raise ValueError(f"{name}: expected the same names as in its argument: {error}") from error
    shapes, returned = (
        [
            (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, Tensor) else type(leaf).__name__
            for leaf in tree_leaves(tree)
        ]
        for tree in (expected, ordered)
    )
    if shapes != returned:
        raise ValueError(f"{name}: expected the shape of one block, {shapes}, got {returned}")
    return ordered


def described(memory: Any, blocks: int) -> str:
    """What the memory of a variance reduction holds of every block, and of how many of its batches."""
    if memory is None:
        return "none"
    batches = {call: len(tree_leaves(rows)[0]) // blocks for call, rows in memory["batches"].items()}
    return f"that remembers {', '.join(sorted(memory['blocks']))} and batches {batches or 'of none'}"


def _kind(optimizer: Any, lower: Any, blocks: int, memory: Iterable[str]) -> dict[str, Any]:
    """What a state and the solver that steps it must have in common."""
    return {
        "x moved by": "lr" if optimizer is None else "optimizer",
        "lower level": "none" if lower is None else "one",
        "number of blocks": blocks,
        "memory of the estimator": sorted(memory),
    }


def _check_dual_rate(dual: Tree, lr_dual: Any) -> None:
    if dual is not None and lr_dual is None:
        raise ValueError("lr_dual: there are duals, so expected a step size for them, got None")


def _check_tensors(name: str, tree: Tree, device: torch.device | None = None) -> None:
    leaves = tree_leaves(tree)
    if not leaves or not all(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in leaves):
        got = [str(leaf.dtype) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves]
        raise TypeError(f"{name}: expected a floating-point tensor or a dict of such, got {got}")
    for leaf in leaves:
        if device is not None and leaf.device != device:
            raise ValueError(f"{name}: expected tensors on {device}, where x0 is, got one on {leaf.device}")
        if not torch.isfinite(leaf).all():
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")


def _check_leading_axis(name: str, tree: Any, size: int, meaning: str) -> None:
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            if leaf.ndim == 0 or leaf.shape[0] != size:
                raise ValueError(
                    f"{name}: expected a leading axis of {meaning} = {size}, got shape {tuple(leaf.shape)}; "
                    "blocks are the first axis of every tensor: torch.stack what each block has"
                )
        elif tree is not None:
            raise TypeError(
                f"{name}: expected tensors in nested dicts, lists or tuples, got {type(leaf).__name__}; "
                "pass what all blocks share in a closure"
            )
