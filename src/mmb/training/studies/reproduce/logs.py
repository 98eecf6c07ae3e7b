"""The logs of a study's runs: kept in a folder of results, and read there."""

import shutil
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from mmb._atomic_files import replacing, write_whole
from mmb.metrics import METRICS
from mmb.training.loop.evaluate import TrainingError
from mmb.training.recipes.nested import Fragment
from mmb.training.recipes.renamed import translate
from mmb.training.runs.log import read_log
from mmb.training.runs.run import RunError, read_outcome, read_run_recipe
from mmb.training.studies.many_runs import ERROR, PlannedRun
from mmb.training.studies.reproduce.study import TableStudy

_FAILED = "failed.txt"  # stands for the result of a run whose training failed
_RECIPE, _LOG, _RESULT = "recipe.yaml", "metrics.jsonl", "result.json"
_METRICS = (*METRICS, *(f"train_{name}" for name in METRICS))
_REMEDY = "put it back, or move the folder elsewhere and run `mmb reproduce` again"


def keep_logs(planned: Iterable[PlannedRun], results: Path) -> None:
    """Copy the logs of finished runs to `results`; of runs whose training failed, the reason."""
    for one in planned:
        kept = results / one.name
        problem = failure_of(one.run.path)
        if not one.run.finished and problem is None:
            continue
        kept.mkdir(parents=True, exist_ok=True)
        for name in (_RECIPE, _LOG, _RESULT) if one.run.finished else (_RECIPE,):
            with replacing(kept / name) as place:
                shutil.copyfile(one.run.path / name, place)
        if problem is None:
            (kept / _FAILED).unlink(missing_ok=True)
        else:
            write_whole(kept / _FAILED, f"{problem}\n")


def has_ended(path: Path) -> bool:
    """Whether a folder of a run, or of its logs, has its result, or says why it failed."""
    return (path / _RESULT).exists() or failure_of(path) is not None


def failure_of(path: Path) -> str | None:
    """Why training failed, by a folder of a run or of its logs; None if it did not.

    Only failures due to the settings of the run count; after any other it is tried again.
    """
    for name in (_FAILED, ERROR):
        if not (path / _RESULT).exists() and (path / name).exists():
            problem = (path / name).read_text(encoding="utf-8").split("\n\n")[0].strip()
            return problem if problem.startswith(TrainingError.__name__) else None
    return None


class LoggedRun:
    """The kept log of a finished run, and that of the first phase it started from; read when needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start: LoggedRun | None = None

    @property
    def seed(self) -> int:
        """The seed of the run, which names its folder."""
        return int(self.path.name.removeprefix("seed-"))

    @cached_property
    def recipe(self) -> Fragment:
        """Its recipe, not resolved."""
        return translate(read_run_recipe(self.path))

    @cached_property
    def result(self) -> dict[str, Any]:
        """The result of the run."""
        file = self.path / _RESULT
        try:
            return read_outcome(file)
        except (OSError, ValueError) as error:
            raise RunError(f"{file}: cannot be read ({error}): {_REMEDY}") from None

    def has(self, key: str) -> bool:
        """Whether something was logged at evaluations."""
        return any(key in point for point in self.by_step)

    @property
    def seconds(self) -> float:
        """Time of training, first phase included."""
        first = self.start.seconds if self.start is not None else 0.0
        return float(self.result["seconds"]) + first

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        records = read_log(self.path)
        if not records:
            raise RunError(f"{self.path / _LOG}: it is missing or empty: {_REMEDY}")
        return records

    @cached_property
    def curve(self) -> list[dict[str, float]]:
        """Epoch, seconds and metrics at every evaluation, after those of the first phase."""
        points = list(self.start.curve) if self.start is not None else []
        start = points[-1] if points else {"epoch": 0.0, "seconds": 0.0}
        per_epoch = self.records[0]["steps_per_epoch"]
        for record in self.records:
            if record["kind"] == "valid":
                epoch = start["epoch"] + record["step"] / per_epoch
                metrics: dict[str, float] = {name: record[name] for name in _METRICS if name in record}
                points.append({"epoch": epoch, "seconds": start["seconds"] + record["seconds"], **metrics})
        return points

    @cached_property
    def by_step(self) -> list[dict[str, float]]:
        """What was logged at each step, without the first phase: seconds, loss, metrics."""
        found: dict[int, dict[str, float]] = {}
        for record in self.records:
            if record["kind"] in ("train", "valid"):
                kept = {key: record[key] for key in ("seconds", "loss", *_METRICS) if key in record}
                found.setdefault(record["step"], {"step": record["step"]}).update(kept)
        return [found[step] for step in sorted(found)]


def logged_runs(study: TableStudy, results: Path) -> dict[str, list[LoggedRun]]:
    """The finished runs of each row that has any, by seed."""
    runs = {}
    for row in study.recipes:
        found = []
        for file in (results / study.name / row).glob(f"seed-*/{_RESULT}"):
            run = LoggedRun(file.parent)
            # one with branches counts its first phase itself
            if run.recipe.get("pretrain") is not None and not run.recipe.get("branches"):
                run.start = LoggedRun(results / study.start_name(run.seed))
            found.append(run)
        if found:
            runs[row] = sorted(found, key=lambda run: run.seed)
    return runs
