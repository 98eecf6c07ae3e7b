"""The sampler that a recipe asks for."""

import math
from collections.abc import Callable
from typing import cast

from mmb.auc import Labels, RichRowSampler, TaskSampler
from mmb.training.loop.randomness import derive_seed
from mmb.training.loop.read_ahead import Draws
from mmb.training.recipes.components import sampler_class, weights_per_task
from mmb.training.recipes.recipe import OwnSampler, Recipe


def rows_per_step(recipe: Recipe) -> int | None:
    """Rows drawn in one step of a recipe, with those of the lower level; None for a user's own sampler."""
    sampler = recipe.sampler
    if isinstance(sampler, OwnSampler):
        return None
    if sampler.kind == "rows":
        return sampler.batch_size
    drawn = sampler.tasks_per_step * sampler.rows_per_task
    return 2 * drawn if weights_per_task(recipe) else drawn


def make_sampler(recipe: Recipe, labels: Labels) -> Draws:
    """The sampler of a recipe, with its own generator."""
    settings, seed = recipe.sampler, derive_seed(recipe.seed, "sampler")
    if isinstance(settings, OwnSampler):
        own: Callable[..., Draws] = sampler_class(settings.kind)
        return own(labels, generator=seed, **settings.options)
    if settings.kind == "rows":
        return RichRowSampler(
            labels,
            min(settings.batch_size, labels.num_rows),
            settings.rich_fraction,
            max_weight=settings.max_weight,
            generator=seed,
        )
    tasks = min(settings.tasks_per_step, labels.num_usable)
    return TaskSampler(
        labels,
        tasks,
        settings.rows_per_task * settings.tasks_per_step // tasks,  # as many rows in all
        settings.positive_fraction,
        independent_lower=weights_per_task(recipe),
        steps_per_epoch=math.ceil(labels.num_rows / cast(int, rows_per_step(recipe))),
        generator=seed,
    )
