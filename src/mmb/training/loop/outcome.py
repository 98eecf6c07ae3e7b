"""The end of a run: metrics of the selected weights, decision thresholds, a table."""

import os
import platform
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import mmb
from mmb._atomic_files import write_whole
from mmb._cores import available_cores
from mmb.training.loop.evaluate import part_logits
from mmb.training.loop.progress import Progress
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, find_device, make_setup
from mmb.training.recipes.components import complete_model
from mmb.training.recipes.recipe import Recipe
from mmb.training.runs import checkpoint
from mmb.training.runs.fingerprints import changed
from mmb.training.runs.own_versions import own_versions
from mmb.training.runs.run import Run, RunError
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


def stored_setup(run: Run) -> Setup:
    """The parts of a run, to evaluate its weights; the caller's random numbers stay as they are."""
    with run.own_data(), own_randomness(run.recipe.seed, find_device(run.recipe.training.device)):
        return make_setup(run.recipe)


def selected_setup(run: Run) -> Setup:
    """The parts of a finished run, with its selected weights."""
    best = run.best_checkpoint()
    setup = stored_setup(run)
    load_weights(setup, best)
    return setup


def load_weights(setup: Setup, path: Path) -> None:
    """Put the weights and block state of a checkpoint into a setup; warns if the data has changed since."""
    put_weights(setup, checkpoint.load_selected(path, setup.ranks), path.parent.parent)


def put_weights(setup: Setup, saved: dict[str, Any], run: Path) -> None:
    """As `load_weights`, with the state in a checkpoint of the run in a folder."""
    if problem := changed(saved.get("data", {}), setup.data_facts):
        warnings.warn(f"{run}: {problem}", stacklevel=3)
    state = saved["job"]
    try:
        setup.model.load_state_dict(state["model"])
    except RuntimeError as error:
        name = setup.recipe.model["name"]
        raise RunError(f"{run}: the network {name} does not fit the weights of the run: {error}") from error
    setup.objective.load_state_dict(setup.division.own_blocks(state["objective"]))


def evaluate_run(run: Run, part: str, max_fpr: float | None = None) -> dict[str, Any]:
    """Metrics of the selected weights of a finished run on a part of its data.

    Args:
        run: The run.
        part: `"train"`, `"valid"` or `"test"`.
        max_fpr: Limit of the partial AUC; by default, that of the recipe.

    Returns:
        Means over tasks, and a list per metric over the tasks.
    """
    setup, settings = selected_setup(run), run.recipe.training
    max_fpr = settings.max_fpr if max_fpr is None else max_fpr
    found = task_metrics(*part_logits(setup, part), max_fpr, settings.select)
    return {
        "run": str(run.path),
        "split": part,
        "step": int(run.best_checkpoint().name),
        "max_fpr": max_fpr,
        "mean": plain_means(mean_metrics(found)),
        "tasks": {"name": list(setup.dataset.task_names)} | {k: plain(v) for k, v in found.items()},
    }


def provenance_of(device: torch.device, recipe: Recipe) -> dict[str, Any]:
    """The device on which a result was computed, versions, and the commit (None outside of a checkout).

    Versions include those of the user's own parts, by import path: of the package, or the checksum of a
    module whose package states none.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{available_cores()} CPU cores"
    return {
        "device": str(device),
        "device_name": name,
        "versions": {
            "mmb": mmb.__version__,
            "commit": commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            **own_versions(recipe),
        },
    }


def commit() -> str | None:
    """The commit of the package's checkout; or `MMB_COMMIT`, for copies of one."""
    if "MMB_COMMIT" in os.environ:
        return os.environ["MMB_COMMIT"]
    command = ["git", "-C", str(Path(mmb.__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None
