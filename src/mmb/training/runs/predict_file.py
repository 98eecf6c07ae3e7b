"""A file of new rows with their scores, probabilities and decisions, by finished runs."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mmb.metrics import OperatingPoints
from mmb.training.runs.averaged_runs import CONFIDENCE, AveragedRuns
from mmb.training.runs.prediction_tables import task_columns, writing_table
from mmb.training.runs.run import Run
from mmb.training.runs.scoring import plain


def predict_file(
    runs: Run | Sequence[Run],
    source: Path,
    target: Path,
    fpr: float | None = None,
    *,
    tpr: float | None = None,
    confidence: float | None = None,
) -> dict[str, Any]:
    """Score every row of a file, with probabilities, and decide at each task's threshold.

    The output has one line per row of the input, in its order: `row` (from 1), `usable` (1, or 0 for a row
    that cannot be scored, with the reason as `problem`), all columns of the input, and for each task

    - its score, the sigmoid of the logit, which ranks rows;
    - `TASK:probability`, calibrated on validation rows by Platt's curve or isotonic regression, whichever
      is better on rows it was not fit to;
    - `TASK:decision`, 1 if the score is above the task's threshold, else 0; blank if that is not known.

    Cells are blank for a task that had no positives or no negatives to train on, and so are the probabilities
    of a task without labels among the validation rows. A column of the input whose name is taken is called
    `input:NAME`. A task whose name starts with `=`, `+`, `-` or `@` is written with a quote in front, so that
    no spreadsheet takes it for a formula.

    Args:
        runs: A finished run; or several of the same data and split, whose scores are averaged.
        source: The file with new rows: a table with the feature columns of the training data, in any format
            that is read for training, or images.
        target: The file to write: CSV, or by its name `.tsv` or `.parquet`.
        fpr: False positive rate of the decisions; that of the recipe by default. It holds on the validation
            rows or, with `confidence`, bounds that of new rows.
        tpr: Instead, the least true positive rate that new rows have.
        confidence: Probability with which the rate is kept on new rows, for each task; see
            `mmb.metrics.operating_points`. By default 0.95 with `tpr`, and no promise with `fpr`.

    Returns:
        How many rows there are, how many are not usable and why, how many are called positive for each task,
        the names of the tasks that were not trained, columns with names that no training row has, tasks of
        which the input has labels, and what is promised.

    Raises:
        RunError: If a run is not finished, its data does not define how to read new files, runs cannot be
            averaged, or names of tasks clash with those of other columns.
        ValueError: If a rate is out of range, source and target are the same file, or the name of the target
            is not that of a table.
        DataError: If the file is missing or lacks a column.
    """
    if target.exists() and target.samefile(source):
        raise ValueError(f"output: {target} is the input itself, which would be lost; name another file")
    averaged = AveragedRuns([runs] if isinstance(runs, Run) else runs)
    threshold, promised = averaged.thresholds(fpr, tpr, confidence)
    header = task_columns(averaged.task_names)
    trained, known = torch.tensor(averaged.trained), ~threshold.isnan()
    rows, reasons, positive = 0, Counter[str](), torch.zeros(len(trained), dtype=torch.long)
    unseen, labeled = dict[str, tuple[int, str]](), list[str]()
    with writing_table(target, header) as write:
        for batch, scores in averaged.batches(source):
            usable = torch.tensor([not problem for problem in batch.problems], dtype=torch.bool)
            there = usable.unsqueeze(1) & trained
            decided = (scores > threshold) & there
            chance = averaged.calibration(scores) if averaged.calibration else torch.zeros_like(scores)
            columns = [
                [value if fine else None for value, fine in zip(values.tolist(), shown.tolist(), strict=True)]
                for task in range(len(trained))
                for values, shown in (
                    (scores[:, task].double().sigmoid(), there[:, task]),
                    (chance[:, task], there[:, task] & averaged.calibrated[task]),
                    (decided[:, task].long(), there[:, task] & known[task]),
                )
            ]
            numbers = list(range(rows + 1, rows + len(usable) + 1))
            write([numbers, usable.long().tolist(), batch.problems], batch.columns, columns)
            rows, positive = rows + len(usable), positive + decided.sum(0)
            reasons.update(filter(None, batch.problems))
            for column, (count, name) in batch.unseen.items():
                before, first = unseen.get(column, (0, name))
                unseen[column] = (before + count, first)
            labeled = [name for name in averaged.task_names if name in batch.columns]
    return {
        "input": str(source),
        "output": str(target),
        "runs": len(averaged.predictors),
        "rows": rows,
        "unusable": reasons.total(),
        "problems": dict(reasons.most_common(10)),
        "fpr": (averaged.max_fpr if fpr is None else fpr) if tpr is None else None,
        "tpr": tpr,
        "positive": dict(zip(averaged.task_names, positive.tolist(), strict=True)),
        "untrained": [n for n, yes in zip(averaged.task_names, averaged.trained, strict=True) if not yes],
        "unseen": unseen,
        "labeled": labeled,
        "promise": None if promised is None else _promise(promised, averaged.task_names, confidence),
    }


def _promise(points: OperatingPoints, names: list[str], confidence: float | None) -> dict[str, Any]:
    """What is promised, as plain data."""
    *values, fewest = points
    found: dict[str, Any] = {"confidence": confidence or CONFIDENCE, "fewest_rows": fewest, "tasks": names}
    return found | {name: plain(value) for name, value in zip(points._fields, values, strict=False)}
