"""The selected weights of a run, put back into its parts, and what they are worth."""

import warnings
from pathlib import Path
from typing import Any

from mmb.training.loop.evaluate import part_logits
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, find_device, make_setup
from mmb.training.runs import checkpoint
from mmb.training.runs.fingerprints import changed
from mmb.training.runs.run import Run, RunError
from mmb.training.runs.scoring import mean_metrics, plain, plain_means, task_metrics


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
