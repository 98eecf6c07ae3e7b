"""A step of compositional training beside the same step of the general solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import mmb
from mmb.auc.as_problem.compositional_problem import as_compositional_problem, lower_variables
from mmb.auc.as_problem.objective_problems import as_blocks

if TYPE_CHECKING:
    from mmb.auc import Batch


def gradients(objective: nn.Module, model: nn.Module) -> dict[str, Tensor | None]:
    """The gradients of a model and of an objective's own parameters, by name."""
    found = {f"model.{name}": weight.grad for name, weight in model.named_parameters()}
    return found | {name: weight.grad for name, weight in objective.named_parameters()}


def assert_equals_solver(
    objective: Any, model: nn.Module, batch: Batch, state_names: tuple[str, ...], tolerance: float
) -> None:
    """Take the step of an objective, and check it: gradients, duals, lower variables, and which blocks moved.

    Args:
        objective: A compositional objective, which is moved.
        model: Its model, whose gradients are set.
        batch: A batch.
        state_names: Entries of its block state that must change for the blocks of the batch, and no others.
        tolerance: Absolute and relative.
    """
    solver = mmb.Solver(
        as_compositional_problem(objective, model),
        mmb.Identity(),
        lr=1.0,
        lr_dual=objective.lr_dual,
        lr_lower=objective.lr_lower,
    )
    x0 = {
        "model": dict(model.named_parameters()),
        "mean_positive": objective.mean_positive,
        "mean_negative": objective.mean_negative,
    }
    state = solver.init(x0, dual=objective.dual, lower=lower_variables(objective))
    blocks = as_blocks(objective, batch)
    lower = as_blocks(objective, getattr(batch, "lower", None) or batch)
    assert torch.equal(blocks.blocks, lower.blocks)
    info = solver.step(state, blocks.blocks, blocks.batch, lower.batch, weights=blocks.weights)

    before = {name: value.clone() for name, value in objective.state_dict().items()}
    objective.backward(model, batch)
    close = {"atol": tolerance, "rtol": tolerance}
    for name, value in gradients(objective, model).items():
        expected = info.estimate["model"][name[6:]] if name.startswith("model.") else info.estimate[name]
        assert expected.abs().max() > 0
        torch.testing.assert_close(value, expected, **close, msg=lambda m, n=name: f"{n}: {m}")
    torch.testing.assert_close(objective.dual, state.dual, **close)
    for name, value in lower_variables(objective).items():
        torch.testing.assert_close(value, state.lower[name], **close)
    moved = torch.zeros(len(objective.dual), dtype=torch.bool).index_fill_(0, blocks.blocks, True)
    for name in state_names:
        new = objective.state_dict()[name]
        assert torch.equal(new[~moved], before[name][~moved])
        assert (new[moved] != before[name][moved]).flatten(1 if new.ndim > 1 else 0).any(-1).all()
