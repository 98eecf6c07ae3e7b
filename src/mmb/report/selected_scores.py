"""Scores of a run's selected weights: computed once, kept in the run's folder."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmb._extras import require
from mmb.auc import ThresholdReport
from mmb.training import Run, RunError
from mmb.training.loop.evaluate import part_logits
from mmb.training.loop.selected_weights import load_weights, put_weights, stored_setup
from mmb.training.loop.threshold_log import training_scores
from mmb.training.runs import checkpoint
from mmb.training.runs.kept_tensors import read_tensors, write_tensors
from mmb.training.runs.run import command

_FILE = "report.safetensors"
_KEPT = b"without labels of tasks that were not trained"  # which files of earlier versions have
_ATTEMPTS = 10  # to read a checkpoint of a run in training


@dataclass(frozen=True)
class SelectedScores:
    """Scores of the selected weights, on the host."""

    step: int  # step of the weights
    task_names: list[str]
    sizes: dict[str, int]  # number of rows of each part of the data
    logits: dict[str, Tensor]  # `[n, m]` for "train" (a sample), "valid" and "test"
    labels: dict[str, Tensor]  # of the same rows, with -1 for missing
    train_counts: Tensor  # positives and negatives of each task among all training rows, `[2, m]`
    # thresholds and their quantiles at the steps whose checkpoints still exist
    tracked: dict[int, ThresholdReport]


def selected_checkpoint(run: Run) -> Path:
    """The checkpoint of the selected weights; in an unfinished run, of the best so far."""
    if run.finished:
        return run.best_checkpoint()
    kept = checkpoint.steps(run.checkpoints)
    if not kept:
        raise RunError(
            f"the run in {run.path} has no checkpoint yet: wait for the process that trains it or, if there "
            f"is none, start it with `{command('resume', run.path)}`"
        )
    best = checkpoint.verify(kept[-1], [])["best_step"]
    return run.checkpoints / f"{best:08d}"


def run_scores(run: Run) -> SelectedScores:
    """Scores of a run, from its folder if they were computed for these weights before.

    A run may be in training. Its process may delete a checkpoint while it is read here, because
    there are better and newer ones; then those are read.
    """
    for _ in range(_ATTEMPTS):
        seen = run.finished, checkpoint.steps(run.checkpoints)
        try:
            selected = selected_checkpoint(run)
            if found := _read(run.path / _FILE, mark := _mark(selected)):
                return found
            state = checkpoint.load_selected(selected)
        except checkpoint.CheckpointError:
            if (run.finished, checkpoint.steps(run.checkpoints)) == seen:
                raise
        else:
            return _compute(run, selected, state, mark)
    raise RunError(f"the run in {run.path} writes checkpoints faster than they can be read: try again later")


def _compute(run: Run, selected: Path, state: dict[str, Any], mark: str) -> SelectedScores:
    setup, tracked = stored_setup(run), {}
    if setup.objective.tracks_thresholds:
        for path in checkpoint.steps(run.checkpoints):
            try:
                load_weights(setup, path)
            except checkpoint.CheckpointError:
                continue  # only the selected one is needed
            found = setup.objective.threshold_report(*training_scores(setup))
            if found is not None:
                tracked[int(path.name)] = ThresholdReport(*(values.cpu() for values in found))
    put_weights(setup, state, run.path)
    pairs = {"train": training_scores(setup)}
    pairs |= {part: part_logits(setup, part) for part in ("valid", "test")}
    labels = setup.dataset.labels[setup.dataset.split["train"].to(setup.dataset.device)]
    scores = SelectedScores(
        step=int(selected.name),
        task_names=list(setup.dataset.task_names),
        sizes={part: len(rows) for part, rows in setup.dataset.split.items()},
        logits={part: pair[0].cpu() for part, pair in pairs.items()},
        labels={part: pair[1].cpu() for part, pair in pairs.items()},
        train_counts=torch.stack([(labels == sign).sum(0) for sign in (1, 0)]).cpu(),
        tracked=tracked,
    )
    _write(run.path / _FILE, mark, scores)
    return scores


def _mark(selected: Path) -> str:
    """A digest that identifies the weights of a checkpoint; empty if the checkpoint is lost."""
    manifest = selected / "manifest.json"
    return hashlib.sha256(manifest.read_bytes() + _KEPT).hexdigest() if manifest.exists() else ""


def _write(path: Path, mark: str, scores: SelectedScores) -> None:
    tensors = {"train_counts": scores.train_counts}
    tensors |= {f"logits/{part}": values for part, values in scores.logits.items()}
    tensors |= {f"labels/{part}": values for part, values in scores.labels.items()}
    tensors |= {f"tracked/{step}": torch.stack(list(found)) for step, found in scores.tracked.items()}
    facts = {"mark": mark, "step": scores.step, "sizes": scores.sizes, "task_names": scores.task_names}
    # a read-only folder: compute them again next time
    with suppress(OSError, require("safetensors", extra="training").SafetensorError):
        write_tensors(path, tensors, facts)


def _read(path: Path, mark: str) -> SelectedScores | None:
    """The scores in a file; None if they are of other weights, damaged or cannot be read."""
    try:
        tensors, facts = read_tensors(path)
    except (OSError, ValueError):
        return None
    if facts["mark"] != mark:
        return None

    def group(kind: str) -> dict[str, Tensor]:
        return {name.split("/")[1]: found for name, found in tensors.items() if name.startswith(f"{kind}/")}

    tracked = {int(step): ThresholdReport(*values) for step, values in group("tracked").items()}
    return SelectedScores(
        **{name: facts[name] for name in ("step", "task_names", "sizes")},
        train_counts=tensors["train_counts"],
        logits=group("logits"),
        labels=group("labels"),
        tracked=tracked,
    )
