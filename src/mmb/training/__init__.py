"""Training: recipes, the loop, checkpoints, evaluation, prediction."""

from mmb.training.checkpoint import CheckpointError
from mmb.training.evaluate import TrainingError
from mmb.training.loop import train
from mmb.training.presets import METHODS
from mmb.training.recipe import Recipe
from mmb.training.resolve import RecipeError, merge, parse_overrides, read_recipe, resolve
from mmb.training.run import Run, RunError
from mmb.training.watch import Watch

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
