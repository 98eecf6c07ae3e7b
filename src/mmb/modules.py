"""A torch module as the shared variable."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mmb.trees import Tree


def with_module(module: nn.Module, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of the parameters of a module, from a function of the module.

    In `f` or `g` written as `function(module, ...)`, the module is called as usual: `module(inputs)`. Start
    from the module or from `parameters_of(module)`; results go back with
    `module.load_state_dict(state.x, strict=False)`.
    Buffers, such as the statistics of batch normalization, stay as they are, so put the module in `eval` mode
    if it has any.

    Args:
        module: The module; it is not changed.
        function: `f` or `g` of one block, with the module in place of `x`.

    Returns:
        `upper` or `lower` of [`Problem`][mmb.Problem].
    """

    def of_parameters(x: Tree, *others: Any) -> Tensor:
        def bound(*inputs: Any, **options: Any) -> Any:
            return torch.func.functional_call(module, x, inputs, options)

        return function(bound, *others)

    return of_parameters


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """Copies of a module's trainable parameters by name: `x0` of a solver."""
    found = {name: part.detach().clone() for name, part in module.named_parameters() if part.requires_grad}
    if not found:
        raise ValueError("module: expected one with parameters that require gradients, got none")
    return found


def as_variable(x0: Tree) -> Tree:
    """What a solver moves: the parameters of a module, or the tensors given."""
    return parameters_of(x0) if isinstance(x0, nn.Module) else x0
