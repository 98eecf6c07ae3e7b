"""The same recipe with several seeds: how much results vary, or one model that averages them."""

import json
from collections.abc import Sequence
from pathlib import Path

from mmb._atomic_files import write_whole
from mmb.training.loop.evaluate import part_logits
from mmb.training.loop.selected_weights import selected_setup
from mmb.training.recipes.nested import Fragment
from mmb.training.recipes.resolution import resolve
from mmb.training.runs.averaged_runs import AveragedRuns
from mmb.training.runs.run import Run, RunError
from mmb.training.runs.scoring import mean_metrics, plain_means, task_metrics
from mmb.training.studies.many_runs import PlannedRun, plan_runs

_ENSEMBLE = "ensemble.json"


def plan_replicates(fragment: Fragment, number: int, folder: Path) -> list[PlannedRun]:
    """Make, or find again, the folders of several runs that differ in their seed.

    Args:
        fragment: The recipe; its seed is the first one.
        number: How many.
        folder: Folder of all of them; each run is in `seed-N`.

    Returns:
        The runs, for `train_many`.

    Raises:
        RecipeError: If a key or a value is wrong; no folder is made then.
        RunError: If a folder has a run of another recipe.
    """
    first = resolve(fragment).seed
    changes = {f"seed-{seed}": {"seed": seed} for seed in range(first, first + number)}
    return plan_runs(fragment, changes, folder)


def write_ensemble(folder: Path, runs: Sequence[Run]) -> None:
    """Let a folder stand for the average of runs in it, for `open_runs`."""
    write_whole(folder / _ENSEMBLE, json.dumps({"members": [run.path.name for run in runs]}, indent=1))


def open_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in some folders; that of an ensemble stands for all of its runs."""
    found = []
    for path in paths:
        try:
            members = json.loads((path / _ENSEMBLE).read_text(encoding="utf-8"))["members"]
        except FileNotFoundError:
            members = ["."]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path / _ENSEMBLE} is damaged ({error}): name the runs in {path} instead"
            ) from error
        found += [Run.open(path / name) for name in members]
    return found


def averaged_metrics(runs: Sequence[Run], part: str = "test") -> dict[str, float | None]:
    """Mean metrics over tasks of the average of finished runs, on a part of their data."""
    averaged, logits = AveragedRuns(runs), []
    for run in runs:
        scores, labels = part_logits(selected_setup(run), part)
        logits.append(scores.cpu())
    settings = runs[0].recipe.training
    average = averaged.average(logits)
    found = task_metrics(average, labels.cpu(), settings.max_fpr, settings.select)
    return plain_means(mean_metrics(found))
