"""Training: recipes, the loop, checkpoints, evaluation, prediction."""

from mmb.training.loop.evaluate import TrainingError
from mmb.training.loop.loop import train
from mmb.training.loop.watch import Watch
from mmb.training.recipes.presets import METHODS
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import RecipeError, merge, parse_overrides, read_recipe, resolve
from mmb.training.runs.checkpoint import CheckpointError
from mmb.training.runs.run import Run, RunError

__all__ = [
    "METHODS",
    "CheckpointError",
    "Recipe",
    "RecipeError",
    "Run",
    "RunError",
    "TrainingError",
    "Watch",
    "merge",
    "parse_overrides",
    "read_recipe",
    "resolve",
    "train",
]
