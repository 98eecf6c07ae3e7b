"""Scores and decisions for new rows, from the folder of a run alone: its data is not needed."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmb._atomic_files import whole_file
from mmb.data import Dataset, Encoder, Inputs, encoder_from_json
from mmb.data.dataset import SPLITS
from mmb.label_values import MISSING
from mmb.models import registry
from mmb.training.runs import checkpoint
from mmb.training.runs.run import Run, RunError
from mmb.training.runs.scoring import predict_logits

_FORMULA = ("=", "+", "-", "@")  # how a formula starts
_FACTS = ("task_names", "max_fpr", "thresholds", "model", "encoder")


@dataclass
class Predictor:
    """The selected model of a finished run, with its thresholds and its way to read files."""

    model: nn.Module  # on the host, in evaluation mode
    task_names: list[str]
    encoder: Encoder | None  # reads files of new rows; None if the data set does not define how
    thresholds: dict[float, list[float | None]]  # of logits, by rate; None for a task without negatives
    max_fpr: float  # the rate of the recipe
    batch_size: int
    trained: list[bool]  # which tasks had both positives and negatives to train on

    @classmethod
    def load(cls, run: Run) -> Predictor:
        """Load the selected model of a run."""
        best = run.best_checkpoint()
        facts = run.outcome("predictor.json", _FACTS)
        model: nn.Module = registry.build(**facts["model"]).eval()
        model.load_state_dict(checkpoint.load_selected(best)["job"]["model"])
        return cls(
            model,
            facts["task_names"],
            None if facts["encoder"] is None else encoder_from_json(facts["encoder"]),
            {float(rate): values for rate, values in facts["thresholds"].items()},
            facts["max_fpr"],
            run.recipe.training.evaluation_batch_size,
            facts.get("trained", [True] * len(facts["task_names"])),
        )

    def logits(self, inputs: Inputs) -> Tensor:
        """Logits of all rows, `[n, m]`."""
        rows = torch.arange(len(inputs))
        labels = torch.full((len(inputs), len(self.task_names)), MISSING, dtype=torch.int8)
        unlabeled = Dataset("new", inputs, labels, dict.fromkeys(SPLITS, rows), tuple(self.task_names))
        return predict_logits(self.model, unlabeled, rows, self.batch_size)

    def threshold(self, fpr: float | None) -> Tensor:
        """Thresholds `[m]` at a false positive rate (that of the recipe by default), NaN where unknown."""
        fpr = self.max_fpr if fpr is None else fpr
        if fpr not in self.thresholds:
            kept = ", ".join(f"{rate:g}" for rate in self.thresholds)
            raise ValueError(f"fpr: the run has no thresholds for a rate of {fpr:g}; choose among {kept}")
        unknown = -torch.inf if fpr == 1 else torch.nan  # at a rate of one, all rows are called positive
        return torch.tensor([unknown if t is None else t for t in self.thresholds[fpr]])


def predict_file(run: Run, source: Path, target: Path, fpr: float | None = None) -> dict[str, Any]:
    """Score every row of a file, and decide at each task's threshold.

    The output is a CSV file with one line per row of the input, in its order: `row` (from 1), `usable` (1,
    or 0 for a row that could not be read, whose other cells are blank), and for each task its score (the
    sigmoid of the logit) and, as `TASK:decision`, 1 if the logit is above the task's threshold, else 0;
    blank if the threshold is not known. Both are blank for a task that had no positives or no negatives to
    train on. A task whose name starts with `=`, `+`, `-` or `@` is written with a quote in front, as in
    `'=name`, so that no spreadsheet takes it for a formula.

    Args:
        run: A finished run.
        source: The file with new rows, as the data of the run: CSV, with the same feature columns.
        target: The file to write.
        fpr: False positive rate of the decisions on the validation rows; that of the recipe by default.

    Returns:
        How many rows there were, how many were not usable, how many were called positive for each task, and
        the names of the tasks that were not trained.

    Raises:
        RunError: If the run is not finished, its data does not define how to read new files, or names of
            tasks clash with those of other columns.
        ValueError: If there are no thresholds at this rate, or source and target are the same file.
        DataError: If the file is missing or lacks a column.
    """
    if target.exists() and target.samefile(source):
        raise ValueError(f"output: {target} is the input itself, which would be lost; name another file")
    predictor = Predictor.load(run)
    if predictor.encoder is None:
        name = run.recipe.data["name"]
        raise RunError(f"the data set {name!r} does not define how new files are read; use `mmb export`")
    threshold = predictor.threshold(fpr)
    header = columns_for(predictor.task_names)
    inputs, usable = predictor.encoder.read(source)
    logits = predictor.logits(inputs)
    decided = (logits > threshold) & usable.unsqueeze(1) & torch.tensor(predictor.trained)
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        known = list(zip(predictor.trained, (~threshold.isnan()).tolist(), strict=True))
        for number, (good, scores, decisions) in enumerate(
            zip(usable.tolist(), logits.double().sigmoid().tolist(), decided.tolist(), strict=True), 1
        ):
            cells: list[Any] = [number, int(good)]
            for score, decision, (trained, sure) in zip(scores, decisions, known, strict=True):
                cells += [f"{score:.8g}", int(decision) if sure else ""] if good and trained else ["", ""]
            writer.writerow(cells)
    return {
        "input": str(source),
        "output": str(target),
        "rows": len(usable),
        "unusable": int((~usable).sum()),
        "fpr": predictor.max_fpr if fpr is None else fpr,
        "positive": dict(zip(predictor.task_names, decided.sum(0).tolist(), strict=True)),
        "untrained": [n for n, yes in zip(predictor.task_names, predictor.trained, strict=True) if not yes],
    }


def columns_for(task_names: Sequence[str]) -> list[str]:
    """The columns of a table of predictions; RunError if names of tasks clash with those of other columns.

    A name that a spreadsheet would run as a formula gets a quote in front.
    """
    header = ["row", "usable"]
    for name in task_names:
        shown = f"'{name}" if name.startswith(_FORMULA) else name
        header += [shown, f"{shown}:decision"]
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise RunError(
            f"a table of predictions would have columns {twice} twice: rename the tasks and train again"
        )
    return header
