"""A variable is a tensor or a (nested) dict of tensors; these functions treat both the same.

"Per block" means: every leaf has a leading axis that counts blocks, and the result has one entry per block.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import (
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

Tree: TypeAlias = Any  # Tensor | dict[str, Tree]; None where a problem has no such variable

__all__ = [
    "Tree",
    "add_scaled",
    "all_finite",
    "block_dot",
    "block_norm",
    "blocks_finite",
    "by_place",
    "gather",
    "map_tensors",
    "norm",
    "ravel_blocks",
    "scale_blocks",
    "scatter_",
    "tensors",
    "tree_leaves",
    "tree_map",
    "unravel_blocks",
    "where_blocks",
]


def gather(tree: Tree, blocks: Tensor) -> Tree:
    """Copy the chosen blocks out of the stacked variable, at a cost that depends only on their number."""
    return tree_map(lambda leaf: None if leaf is None else leaf.index_select(0, blocks), tree)


def scatter_(tree: Tree, blocks: Tensor, values: Tree) -> None:
    """Write the chosen blocks back in place; all other blocks stay bit-identical."""
    tree_map(lambda leaf, new: None if leaf is None else leaf.index_copy_(0, blocks, new), tree, values)


def by_place(tree: Tree) -> dict[str, Any]:
    """The leaves by their place in the tree, whatever the order of its dicts."""
    return {keystr(path): leaf for path, leaf in tree_flatten_with_path(tree)[0]}


def add_scaled(tree: Tree, step: float | Tensor, direction: Tree) -> Tree:
    """Return `tree + step * direction`."""
    return tree_map(lambda leaf, d: leaf + step * d, tree, direction)


def scale_blocks(tree: Tree, factors: Tensor) -> Tree:
    """Multiply every block by its own factor."""
    return tree_map(lambda leaf: leaf * _per_block(factors, leaf).to(leaf.dtype), tree)


def where_blocks(mask: Tensor, yes: Tree, no: Tree) -> Tree:
    """Take the blocks of `yes` where the mask is true, those of `no` elsewhere."""
    return tree_map(lambda a, b: torch.where(_per_block(mask, a), a, b), yes, no)


def block_dot(left: Tree, right: Tree) -> Tensor:
    """Inner product per block, summed over the leaves."""
    pairs = zip(tree_leaves(left), tree_leaves(right), strict=True)
    return torch.stack([(a * b).flatten(1).sum(1) if a.ndim > 1 else a * b for a, b in pairs]).sum(0)


def block_norm(tree: Tree) -> Tensor:
    """Euclidean norm per block."""
    return block_dot(tree, tree).sqrt()


def all_finite(tree: Tree) -> Tensor:
    """Whether there is no NaN and no infinity in a tree: a boolean scalar."""
    return torch.stack([torch.isfinite(leaf).all() for leaf in tree_leaves(tree)]).all()


def blocks_finite(tree: Tree, like: Tensor) -> Tensor:
    """The same per block, [k]; `like` is any tensor with one entry per block."""
    finite = torch.ones_like(like, dtype=torch.bool)
    for leaf in tree_leaves(tree):
        if leaf is not None:
            good = torch.isfinite(leaf)
            finite = finite & (good.flatten(1).all(1) if good.ndim > 1 else good)
    return finite


def norm(tree: Tree) -> Tensor:
    """Euclidean norm over all leaves together."""
    lengths = torch.stack([torch.linalg.vector_norm(leaf) for leaf in tree_leaves(tree)])
    return lengths.square().sum().sqrt()


def ravel_blocks(tree: Tree) -> Tensor:
    """Lay every block out as one row: [blocks, d] where d counts all entries of a block."""
    rows = [leaf.reshape(leaf.shape[0], math.prod(leaf.shape[1:])) for leaf in tree_leaves(tree)]
    return torch.cat(rows, dim=1)


def unravel_blocks(flat: Tensor, like: Tree) -> Tree:
    """Undo `ravel_blocks`, giving blocks of the shape of `like`."""
    leaves, structure = tree_flatten(like)
    parts = torch.split(flat, [leaf[0].numel() for leaf in leaves], dim=1)
    shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return tree_unflatten(shaped, structure)


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
        parts = {field.name: map_tensors(function, getattr(value, field.name)) for field in fields(value)}
        return replace(value, **parts)
    if isinstance(value, Mapping):
        return {key: map_tensors(function, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(function, part) for part in value)
    return value
