"""Training: recipes, the loop, checkpoints, evaluation, prediction, and studies of many runs."""

from mmb._renamed import renamed_names
from mmb.training.given import fit
from mmb.training.loop.evaluate import TrainingError
from mmb.training.loop.loop import train
from mmb.training.loop.observer import Observer
from mmb.training.loop.selected_weights import evaluate_run
from mmb.training.recipes.nested import merge
from mmb.training.recipes.overrides import with_overrides
from mmb.training.recipes.presets import METHODS, Method
from mmb.training.recipes.reading import read_recipe
from mmb.training.recipes.recipe import (
    OptimizerSettings,
    Recipe,
    RecipeError,
    SamplerSettings,
    ScheduleSettings,
    SoupSettings,
    TrainingSettings,
)
from mmb.training.recipes.resolution import resolve
from mmb.training.runs.checkpoint import CheckpointError
from mmb.training.runs.evaluate_file import evaluate_file
from mmb.training.runs.export import ExportError, export_run
from mmb.training.runs.predict_file import predict_file
from mmb.training.runs.run import Run, RunError
from mmb.training.studies.compare import plan_comparison, summarize
from mmb.training.studies.folds import plan_folds, predict_out_of_fold
from mmb.training.studies.many_runs import PlannedRun, train_many
from mmb.training.studies.replicates import open_runs, plan_replicates
from mmb.training.studies.reproduce import TableStudy, plan_choices, plan_table
from mmb.training.studies.tune import TuningStudy

__all__ = [
    "METHODS",
    "CheckpointError",
    "ExportError",
    "Method",
    "Observer",
    "OptimizerSettings",
    "PlannedRun",
    "Recipe",
    "RecipeError",
    "Run",
    "RunError",
    "SamplerSettings",
    "ScheduleSettings",
    "SoupSettings",
    "TableStudy",
    "TrainingError",
    "TrainingSettings",
    "TuningStudy",
    "evaluate_file",
    "evaluate_run",
    "export_run",
    "fit",
    "merge",
    "open_runs",
    "plan_choices",
    "plan_comparison",
    "plan_folds",
    "plan_replicates",
    "plan_table",
    "predict_file",
    "predict_out_of_fold",
    "read_recipe",
    "resolve",
    "summarize",
    "train",
    "train_many",
    "with_overrides",
]

__getattr__ = renamed_names(
    __name__,
    {
        "parse_overrides": "mmb.training.with_overrides(fragment, overrides)",
        "Watch": "mmb.training.Observer",
    },
)
