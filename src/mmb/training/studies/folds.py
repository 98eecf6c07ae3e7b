"""Cross-validation: a run for each fold, and scores of every row by the run that was not trained on it."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmb._atomic_files import whole_file
from mmb.label_values import MISSING
from mmb.training.loop.evaluate import part_logits
from mmb.training.loop.selected_weights import selected_setup
from mmb.training.recipes.nested import Fragment
from mmb.training.runs.calibrate import fit_calibration
from mmb.training.runs.prediction_tables import shown_name
from mmb.training.runs.run import Run
from mmb.training.runs.scoring import mean_metrics, plain_means, task_metrics
from mmb.training.studies.many_runs import PlannedRun, plan_runs


def plan_folds(fragment: Fragment, folds: int, folder: Path) -> list[PlannedRun]:
    """Make, or find again, the folders of the runs of a cross-validation.

    In each, another fold tests, the next one is for validation, and all others train.

    Args:
        fragment: The recipe; its data set has the options `folds` and `fold`, as `table` has.
        folds: How many, at least 3.
        folder: Folder of all of them; each run is in `fold-N`.

    Returns:
        The runs, for `train_many`.

    Raises:
        RecipeError: If a key or a value is wrong; no folder is made then.
        RunError: If a folder has a run of another recipe.
    """
    changes = {f"fold-{fold}": {"data": {"folds": folds, "fold": fold}} for fold in range(folds)}
    return plan_runs(fragment, changes, folder)


def predict_out_of_fold(runs: Sequence[Run], target: Path) -> dict[str, float | None]:
    """Score every row by the run that neither trained nor selected on it, and write a CSV file.

    Scores are probabilities, by the curve of Platt that each run's validation rows give: rows of different
    folds can be ranked together. There is a line for each row of the data, in its order: `row` (from 1),
    `fold` (blank, like all that follows, for a row in no fold), and the probability of each task (blank where
    the fold has no positives or no negatives of a task to train on).

    Args:
        runs: The finished runs of `plan_folds`, in its order.
        target: The file to write.

    Returns:
        Means over tasks of the metrics of all rows together.
    """
    scored: list[tuple[Tensor, Tensor]] = []  # rows of each fold, and their log-odds
    for run in runs:
        setup = selected_setup(run)
        scale = fit_calibration(*part_logits(setup, "valid"))
        odds = scale.log_odds(part_logits(setup, "test")[0].cpu())
        scored.append((setup.dataset.split["test"], odds.where(setup.trained.cpu(), torch.nan)))
    names, labels = setup.dataset.task_names, setup.dataset.labels.cpu()
    every = torch.full(labels.shape, torch.nan, dtype=torch.float64)
    fold_of = torch.full((len(labels),), MISSING)
    for fold, (rows, odds) in enumerate(scored):
        every[rows], fold_of[rows] = odds, fold
    with whole_file(target) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "fold", *map(shown_name, names)])
        for row, (fold, chances) in enumerate(
            zip(fold_of.tolist(), every.sigmoid().tolist(), strict=True), 1
        ):
            blank = fold == MISSING
            cells = ("" if math.isnan(chance) else f"{chance:.8g}" for chance in chances)
            writer.writerow([row, "" if blank else fold, *cells])
    settings, known = runs[0].recipe.training, labels.where(every.isfinite(), MISSING)
    found = task_metrics(every.nan_to_num(), known, settings.max_fpr, settings.select)
    return plain_means(mean_metrics(found))
