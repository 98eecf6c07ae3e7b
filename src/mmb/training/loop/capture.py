"""Whether the steps of a run can be captured as a CUDA graph, and how much room that needs."""

from itertools import islice
from typing import cast

import torch

from mmb.auc import Labels
from mmb.auc.sampling import Draw
from mmb.training.loop.read_ahead import Draws
from mmb.training.processes.group import ONE, Ranks
from mmb.training.recipes.components import chosen_objectives, weights_per_task
from mmb.training.recipes.recipe import OwnSampler, Recipe

_COUNTED = 64  # draws, in which positives are counted


def decide_capture(recipe: Recipe, device: torch.device, ranks: Ranks = ONE) -> tuple[bool, str | None]:
    """Whether steps are captured and, if "auto" cannot capture them on a GPU, the line that says why.

    Raises:
        ValueError: If `training.capture` is true where a step cannot be captured.
    """
    choice = recipe.training.capture
    if choice is False or (choice == "auto" and device.type != "cuda"):
        return False, None
    problem = capture_problem(recipe, device, ranks)
    if problem is None:
        return True, None
    if choice == "auto":
        return False, not_captured(f"that {problem}")
    raise ValueError(f"training.capture {problem}, or training.capture=false")


def not_captured(reason: str) -> str:
    """The line about a run with `training.capture` of "auto" that is not captured."""
    return f"steps are computed kernel by kernel, not captured: {reason}"


def capture_problem(recipe: Recipe, device: torch.device, ranks: Ranks = ONE) -> str | None:
    """Why steps of a recipe cannot be captured, as far as that is known beforehand."""
    chosen = chosen_objectives(recipe)
    if device.type != "cuda":
        return f"needs a GPU, and the device is {device}: use one"
    if ranks.size > 1:
        return f"needs one process, and there are {ranks.size}: start one"
    if isinstance(recipe.sampler, OwnSampler):
        return "needs batches of one shape, which your own sampler may not give: use another"
    if len(chosen) > 1 and weights_per_task(recipe):
        return "does not work for compositional training as part of a sum: leave it out"
    return next(filter(None, (kind.capture_problem(options) for kind, options in chosen)), None)


def most_positives(sampler: Draws, labels: Labels) -> int:
    """A number of positives that batches of a sampler hardly ever exceed."""
    counts = [
        int((cast(Draw, draw).batch(labels.values, labels.values).labels == 1).sum())
        for draw in islice(iter(sampler), _COUNTED)
    ]
    return max(counts) + max(counts) // 2 + 32
