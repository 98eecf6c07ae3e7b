"""All that a run consists of between two steps."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mmb.trees import Tree, by_place, tree_map


@dataclass
class State:
    """The state of a run; `mmb.Solver.step` changes it in place.

    Attributes:
        x: The shared variable.
        dual: Duals of all blocks, leading axis `m`, or None.
        lower: Lower variables of all blocks, leading axis `m`, or None.
        memory: What the hypergradient estimator remembers of each block.
        shared: What a solver remembers besides, for all blocks together; empty for most.
        z: Moving average of the gradient estimates, or None if a torch optimizer moves `x`.
        last_visit: The step at which each block was last sampled, [m]; -1 for never.
        step: Number of steps made.
        optimizer: The torch optimizer that moves `x`, or None.
        generator: Randomness of estimators that draw.
    """

    x: Tree
    dual: Tree
    lower: Tree
    memory: dict[str, Tree]
    z: Tree
    last_visit: Tensor
    step: int
    optimizer: torch.optim.Optimizer | None
    generator: torch.Generator
    shared: dict[str, Tree] = field(default_factory=dict)

    def staleness(self) -> Tensor:
        """Steps since each block was last sampled, [m]."""
        return self.step - 1 - self.last_visit

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything, as tensors and numbers: `torch.save` it, load it with weights only."""
        content = {name: getattr(self, name) for name in _VARIABLES}
        content["step"] = self.step
        content["generator"] = self.generator.get_state()
        content["optimizer"] = None if self.optimizer is None else self.optimizer.state_dict()
        return copy.deepcopy(content)

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, in place.

        Raises:
            ValueError: If shapes or names differ, or something that depends on the order of names has them in
                another order; nothing is changed then.
        """
        for name in _VARIABLES:
            expected, got = _described(getattr(self, name)), _described(content.get(name))
            if expected != got:
                raise ValueError(
                    f"{name}: expected {expected}, got {got}; is this the state of another problem?"
                )
        if (self.optimizer is None) != (content["optimizer"] is None):
            raise ValueError(
                "optimizer: expected a torch optimizer in both states or in neither, got one in one of them"
            )
        if self.optimizer is not None:
            own, other = (_groups(state) for state in (self.optimizer.state_dict(), content["optimizer"]))
            if own != other:
                raise ValueError(
                    f"optimizer: expected groups with these options and numbers of parameters: {own}, got "
                    f"the state of one with {other}"
                )
            _check_order("x", self.x, content["x"], "the torch optimizer")
        names = by_place(self.lower).keys()
        if any(by_place(memory).keys() != names for memory in self.memory.values()):
            _check_order("lower", self.lower, content["lower"], "the memory of the estimator")
        self.generator.set_state(content["generator"])
        for name in _VARIABLES:
            tree_map(
                lambda old, new: old if old is None else old.copy_(new), getattr(self, name), content[name]
            )
        self.step = content["step"]
        if self.optimizer is not None:
            self.optimizer.load_state_dict(copy.deepcopy(content["optimizer"]))


_VARIABLES = ("x", "dual", "lower", "memory", "z", "last_visit", "shared")


def _described(tree: Tree) -> dict[str, Any]:
    """Shape and dtype of each tensor, by its place."""
    return {
        place: (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, Tensor) else leaf
        for place, leaf in by_place(tree).items()
    }


def _groups(optimizer: dict[str, Any]) -> list[tuple[list[str], int]]:
    """Names of the options and number of parameters of each group of a torch optimizer's state."""
    return [(sorted(group), len(group["params"])) for group in optimizer["param_groups"]]


def _check_order(name: str, expected: Tree, got: Tree, what: str) -> None:
    places, others = list(by_place(expected)), list(by_place(got))
    if places != others:
        raise ValueError(
            f"{name}: {what} depends on the order of its names, so expected {places}, got {others}; start "
            f"from a {name} in that order"
        )
