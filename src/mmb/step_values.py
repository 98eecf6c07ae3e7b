"""What a step of the solver takes, and what it computes."""

from typing import Any, NamedTuple

from torch import Tensor

from mmb.trees import Tree

Rate = float | Tensor  # a tensor in a compiled step, which would be compiled again for every new number


class StepSizes(NamedTuple):
    """The step sizes of one step."""

    x: Rate  # eta_0
    beta: Rate  # beta_0
    dual: Rate  # eta_1
    lower: Rate  # eta_2
    estimator: dict[str, Rate]  # the estimator's own: beta_1 of Algorithm 1, eta_3 of Algorithm 2


class Update(NamedTuple):
    """What one step computes before anything is written."""

    dual: Tree
    lower: Tree
    memory: dict[str, Tree]
    estimate: Tree  # Delta
    z: Tree
    x: Tree
    measures: dict[str, Tensor]
    reduction: Any  # what variance reduction is to remember
