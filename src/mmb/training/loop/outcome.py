"""The end of a run: metrics of the selected weights, decision thresholds, a table."""

from collections.abc import Mapping
from typing import Any

from mmb._atomic_files import write_whole
from mmb.training.loop.evaluate import part_logits
from mmb.training.loop.progress import Progress
from mmb.training.loop.selected_weights import load_weights
from mmb.training.loop.setup import Setup
from mmb.training.recipes.components import complete_model
from mmb.training.runs import checkpoint
from mmb.training.runs.provenance import provenance_of
from mmb.training.runs.run import Run
from mmb.training.runs.scoring import (
    decision_thresholds,
    mean_metrics,
    plain,
    plain_means,
    rates_at,
    task_metrics,
)
from mmb.training.runs.tables import result_table
from mmb.training.runs.validation_scores import ValidationScores

_FPRS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # with decision thresholds, in addition to that of the recipe


def finish(
    run: Run, setup: Setup, progress: Progress, facts: Mapping[str, Any], only_best: bool
) -> dict[str, Any]:
    """Evaluate the selected weights and write `predictor.json`, `table.txt` and `result.json` with the facts.

    With `only_best`, all checkpoints but that of the selected weights are deleted. Returns the result.
    """
    recipe = setup.recipe
    assert progress.best_step is not None  # the first evaluation is the best so far
    load_weights(setup, run.checkpoints / f"{progress.best_step:08d}")
    max_fpr, select = recipe.training.max_fpr, recipe.training.select
    logits, labels = part_logits(setup, "valid")
    per_task = {"valid": task_metrics(logits, labels, max_fpr, select)}
    fprs = sorted({*_FPRS, max_fpr})
    thresholds = decision_thresholds(logits, labels, fprs)
    validation = ValidationScores(logits, labels, setup.dataset.split["valid"])
    judged = "test" if recipe.training.test else "valid"
    if judged == "test":
        logits, labels = part_logits(setup, "test")
        per_task["test"] = task_metrics(logits, labels, max_fpr, select)
    fpr, tpr = rates_at(logits, labels, thresholds[fprs.index(max_fpr)])
    train = setup.dataset.labels[setup.dataset.split["train"].to(setup.dataset.device)]
    positives, negatives = ((train == value).sum(0).tolist() for value in (1, 0))
    result = {
        "method": recipe.method,
        "data": recipe.data["name"],
        "seed": recipe.seed,
        "steps": progress.step,
        "best_step": progress.best_step,
        "selected_by": select,
        "max_fpr": max_fpr,
        "seconds": round(progress.seconds, 3),
        **{part: plain_means(mean_metrics(found)) for part, found in per_task.items()},
        "tasks": {
            "name": list(setup.dataset.task_names),
            "positives": positives,
            "negatives": negatives,
            **{f"{part}_{name}": plain(v) for part, found in per_task.items() for name, v in found.items()},
            f"{judged}_fpr": plain(fpr),
            f"{judged}_tpr": plain(tpr),
        },
        **provenance_of(setup.dataset.device, recipe),
        **facts,
    }
    tracked = setup.objective.thresholds()
    predictor = {
        "task_names": list(setup.dataset.task_names),
        "trained": [p > 0 and n > 0 for p, n in zip(positives, negatives, strict=True)],
        "max_fpr": max_fpr,
        "thresholds": {str(rate): plain(row) for rate, row in zip(fprs, thresholds, strict=True)},
        "tracked_thresholds": None if tracked is None else plain(tracked),  # on the scale of the logits
        "model": complete_model(recipe.model, setup.dataset),
        "encoder": None if setup.dataset.encoder is None else setup.dataset.encoder.to_json(),
    }
    if setup.ranks.is_main:
        validation.write(run)
        run.write_outcome("predictor.json", predictor)
        write_whole(run.path / "table.txt", result_table(result))
        if only_best:
            checkpoint.keep_only(run.checkpoints, progress.best_step)
        run.write_outcome("result.json", result)  # last: the run is finished
    setup.ranks.barrier()
    return result
