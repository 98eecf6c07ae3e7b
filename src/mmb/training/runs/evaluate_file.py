"""How good finished runs are on a labeled file that they have never seen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mmb._names import first_few
from mmb.data import TableError
from mmb.data.files.table import TextTable
from mmb.data.inputs.label_reader import LabelReader
from mmb.label_values import MISSING
from mmb.training.runs.averaged_runs import AveragedRuns
from mmb.training.runs.run import Run
from mmb.training.runs.scoring import mean_metrics, plain, plain_means, rates_at, task_metrics


def evaluate_file(
    runs: Run | Sequence[Run], source: Path | str, max_fpr: float | None = None
) -> dict[str, Any]:
    """Metrics of finished runs on a file with new rows and their labels, such as one of another hospital.

    Rows that cannot be scored are left out. Labels are read as in training; a task without a column in the
    file has no metrics.

    Args:
        runs: A finished run; or several of the same data and split, whose scores are averaged.
        source: The file, with the columns that `predict_file` needs, and columns called like the tasks.
        max_fpr: Limit of the partial AUC; by default, that of the recipe.

    Returns:
        Means over tasks, and a list per metric over the tasks; also positives and negatives of each task, and
        the false and true positive rates at the thresholds that have a rate of `max_fpr` on validation rows.

    Raises:
        RunError: If a run is not finished, or its data does not define how to read new files.
        DataError: If the file is missing, or lacks a column.
    """
    source, runs = Path(source), [runs] if isinstance(runs, Run) else runs
    recipe, averaged = runs[0].recipe, AveragedRuns(runs)
    max_fpr = recipe.training.max_fpr if max_fpr is None else max_fpr
    threshold, _ = averaged.thresholds(max_fpr, None, None)
    names = averaged.task_names
    reader: LabelReader | None = None
    logits, labels, rows, unusable = [torch.empty(0, len(names))], [], 0, 0
    for batch, scores in averaged.batches(source):
        there = [name for name in names if name in batch.columns]
        if not there:
            raise TableError(
                source,
                f"it has no label columns; tasks of the run are {first_few([repr(name) for name in names])}",
                "add a column of labels for at least one task, under its name",
            )
        reader = reader or LabelReader(there, recipe.data.get("positive"))
        usable = torch.tensor([not problem for problem in batch.problems], dtype=torch.bool)
        cells = {name: batch.columns[name] for name in there}
        found = torch.full((len(usable), len(names)), MISSING, dtype=torch.int8)
        places = [names.index(name) for name in there]
        found[:, places] = reader(TextTable(source, cells, torch.ones_like(usable), first=rows))
        logits.append(scores[usable])
        labels.append(found[usable])
        rows, unusable = rows + len(usable), unusable + int((~usable).sum())
    if reader is not None:
        reader.finish()
    scored, known = torch.cat(logits), torch.cat(labels)
    known = known.where(torch.tensor(averaged.trained), MISSING)
    per_task = task_metrics(scored, known, max_fpr, recipe.training.select)
    fpr, tpr = rates_at(scored, known, threshold)
    counts = {name: (known == sign).sum(0) for name, sign in (("positives", 1), ("negatives", 0))}
    return {
        "input": str(source),
        "runs": [str(run.path) for run in runs],
        "rows": rows,
        "unusable": unusable,
        "max_fpr": max_fpr,
        "mean": plain_means(mean_metrics(per_task)),
        "tasks": {"name": list(names)}
        | {name: plain(value) for name, value in {**counts, **per_task, "fpr": fpr, "tpr": tpr}.items()},
    }
