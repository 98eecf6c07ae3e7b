"""A torch optimizer in place of the built-in average."""

import copy

import torch

from mmb.diagnostics import check_moved
from mmb.trees import Tree, tree_map


def move_with(optimizer: torch.optim.Optimizer, x: Tree, gradient: Tree, step: int, checked: bool) -> None:
    """Let an optimizer move x; in a checked step, both are put back if it raises or x overflows."""
    tree_map(lambda leaf, part: setattr(leaf, "grad", part), x, gradient)
    if not checked:
        optimizer.step()
        return
    before, memory = tree_map(torch.clone, x), copy.deepcopy(optimizer.state_dict())
    try:
        optimizer.step()
        check_moved(x, step)
    except BaseException:
        tree_map(lambda leaf, old: leaf.copy_(old), x, before)
        optimizer.load_state_dict(memory)
        raise
