"""A variable is a tensor or a (nested) dict of tensors; these functions treat both the same.

"Per block" means: every leaf has a leading axis that counts blocks, and the result has one entry per block.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Tree: TypeAlias = Any  # Tensor | dict[str, Tree]; None where a problem has no such variable


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to the leaves, as torch's own does, but fast for what is common in every step."""
    kind = type(tree)
    if kind is Tensor:
        return function(tree, *others)
    if kind is dict and all(type(other) is dict and other.keys() == tree.keys() for other in others):
        return {
            name: tree_map(function, part, *(other[name] for other in others)) for name, part in tree.items()
        }
    if not others and isinstance(tree, tuple):
        parts = [tree_map(function, part) for part in tree]
        return kind(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return pytree.tree_map(function, tree, *others)


def tree_leaves(tree: Tree) -> list[Any]:
    """The leaves in order, likewise."""
    kind = type(tree)
    if kind is Tensor:
        return [tree]
    if kind is dict or kind is list or isinstance(tree, tuple):
        return [leaf for part in (tree.values() if kind is dict else tree) for leaf in tree_leaves(part)]
    return pytree.tree_leaves(tree)


def refill(like: Tree, leaves: Iterable[Any]) -> Tree:
    """The tree `like` with other leaves, in the order of `tree_leaves`."""
    source = iter(leaves)
    return tree_map(lambda _: next(source), like)


def gather(tree: Tree, blocks: Tensor) -> Tree:
    """Copy the chosen blocks out of the stacked variable, at a cost that depends only on their number."""
    return tree_map(lambda leaf: None if leaf is None else leaf.index_select(0, blocks), tree)


def scatter_(tree: Tree, blocks: Tensor, values: Tree) -> None:
    """Write the chosen blocks back in place; all other blocks stay bit-identical."""
    tree_map(lambda leaf, new: None if leaf is None else leaf.index_copy_(0, blocks, new), tree, values)


def by_place(tree: Tree) -> dict[str, Any]:
    """The leaves by their place in the tree, whatever the order of its dicts."""
    return {pytree.keystr(path): leaf for path, leaf in pytree.tree_flatten_with_path(tree)[0]}


def add_scaled(tree: Tree, step: float | Tensor, direction: Tree) -> Tree:
    """Return `tree + step * direction`."""
    if isinstance(step, Tensor):
        return tree_map(lambda leaf, d: leaf + step * d, tree, direction)
    return tree_map(lambda leaf, d: torch.add(leaf, d, alpha=step), tree, direction)


def blend(old: Tree, new: Tree, weight: float | Tensor) -> Tree:
    """Return `(1 - weight) * old + weight * new`, the step of a moving average."""
    if isinstance(weight, Tensor):
        return tree_map(lambda before, now: (1 - weight) * before + weight * now, old, new)
    return tree_map(lambda before, now: torch.lerp(before, now, weight), old, new)


def scale_blocks(tree: Tree, factors: Tensor) -> Tree:
    """Multiply every block by its own factor."""
    return tree_map(lambda leaf: leaf * _per_block(factors, leaf).to(leaf.dtype), tree)


def where_blocks(mask: Tensor, yes: Tree, no: Tree) -> Tree:
    """Take the blocks of `yes` where the mask is true, those of `no` elsewhere."""
    return tree_map(lambda a, b: torch.where(_per_block(mask, a), a, b), yes, no)


def block_dot(left: Tree, right: Tree) -> Tensor:
    """Inner product per block, summed over the leaves."""
    pairs = zip(tree_leaves(left), tree_leaves(right), strict=True)
    first, *others = ((a * b).flatten(1).sum(1) if a.ndim > 1 else a * b for a, b in pairs)
    return sum(others, first)


def block_norm(tree: Tree) -> Tensor:
    """Euclidean norm per block."""
    leaves = tree_leaves(tree)
    if len(leaves) > 1:
        return torch.linalg.vector_norm(ravel_blocks(tree), dim=1)
    return torch.linalg.vector_norm(leaves[0].flatten(1), dim=1) if leaves[0].ndim > 1 else leaves[0].abs()


def all_finite(tree: Tree) -> Tensor:
    """Whether there is no NaN and no infinity in a tree: a boolean scalar."""
    numbers = torch.cat([leaf.flatten() for leaf in tree_leaves(tree)])
    return _largest(numbers) < math.inf if len(numbers) else torch.isfinite(numbers).all()


def blocks_finite(tree: Tree) -> Tensor:
    """The same per block, [k]."""
    return _largest(ravel_blocks(tree), dim=1) < math.inf


def _largest(numbers: Tensor, dim: int | None = None) -> Tensor:
    """The largest absolute value, which is NaN if there is one: cheaper than `torch.isfinite`."""
    return torch.linalg.vector_norm(numbers, ord=math.inf, dim=dim)


def norm(tree: Tree) -> Tensor:
    """Euclidean norm over all leaves together."""
    lengths = [torch.linalg.vector_norm(leaf) for leaf in tree_leaves(tree)]
    return lengths[0] if len(lengths) == 1 else torch.linalg.vector_norm(torch.stack(lengths))


def ravel_blocks(tree: Tree) -> Tensor:
    """Lay every block out as one row: [blocks, d] where d counts all entries of a block."""
    rows = [leaf.reshape(leaf.shape[0], math.prod(leaf.shape[1:])) for leaf in tree_leaves(tree)]
    return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


def unravel_blocks(flat: Tensor, like: Tree) -> Tree:
    """Undo `ravel_blocks`, giving blocks of the shape of `like`."""
    leaves = tree_leaves(like)
    parts = torch.split(flat, [math.prod(leaf.shape[1:]) for leaf in leaves], dim=1)
    return refill(like, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])


def _per_block(factors: Tensor, leaf: Tensor) -> Tensor:
    return factors.reshape(-1, *(1,) * (leaf.ndim - 1))


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in a nest of dataclasses, mappings, lists and tuples, in order."""
    if isinstance(value, Tensor):
        yield value
        return
    if is_dataclass(value):
        value = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from tensors(part)


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same nest of dataclasses, mappings, lists and tuples, with a function applied to its tensors."""
    if isinstance(value, Tensor):
        return function(value)
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: map_tensors(function, getattr(value, field.name)) for field in fields(value)}
        return replace(value, **found)
    if isinstance(value, Mapping):
        return {key: map_tensors(function, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [map_tensors(function, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
