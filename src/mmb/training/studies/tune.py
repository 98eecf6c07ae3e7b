"""Tuning: try values of a recipe's grid, keep what is best on the validation rows.

A study is a folder: `study.db` (Optuna, SQLite), a run in `trial-N` for each trial, and `best.yaml`.
Any number of processes may work on it. What each of them works on is known by locks on files, which the
system gives free when a process dies: a trial that was cut off is then continued from its newest checkpoint,
by whoever comes first.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import random
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from mmb._atomic_files import write_whole
from mmb._extras import require
from mmb.training.loop.evaluate import TrainingError
from mmb.training.loop.loop import train
from mmb.training.loop.randomness import derive_seed
from mmb.training.loop.watch import Watch
from mmb.training.recipes.nested import merge, nest
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import RecipeError, resolve, to_plain
from mmb.training.recipes.tuning_grids import grid_of
from mmb.training.runs.run import Run, RunError

Params = Mapping[str, Any]

_PROPOSALS = 20  # of the sampler, before an untried combination is drawn at random
_SHARE_BEFORE_PRUNING = 0.25  # of the steps: small step sizes start slowly
_ADVICE = {  # on failures of SQLite that are not damage
    **dict.fromkeys((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR), "free some space"),
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), "see that no other program holds it"),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN), "see that it may be written"),
}


class Study:
    """The folder of a study, made or found again.

    Args:
        folder: The folder.
        recipe: What is tuned; without a grid, the paper's for its method is used.

    Raises:
        RecipeError: If the grid is empty or has a value that its key cannot take; nothing is written then.
        RunError: If the folder has a study of another recipe, or its database is damaged.
        ImportError: If Optuna is not installed.

    Attributes:
        folder: The folder.
        recipe: The recipe, with the grid.
    """

    def __init__(self, folder: Path | str, recipe: Recipe) -> None:
        self._optuna = require("optuna", extra="tune")
        self.folder, self.recipe = Path(folder), replace(recipe, grid=grid_of(recipe))
        self._choices = check_grid(self.recipe)
        kind = self._optuna.distributions.CategoricalDistribution
        self._space = {key: kind(list(choices)) for key, choices in self._choices.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock("study"), self._database():  # two processes must not both make the tables
            self._study = self._open()

    def _open(self) -> Any:
        path = self.folder / "study.db"
        # SQLite lets one process write at a time; the others wait. It is given the path itself: as a part of
        # an address, `%` and `?` in it would have a meaning.
        connect = partial(sqlite3.connect, path, timeout=60, check_same_thread=False)
        storage = self._optuna.storages.RDBStorage("sqlite:///study.db", engine_kwargs={"creator": connect})
        study = self._optuna.create_study(
            study_name="mmb",
            storage=storage,
            direction="maximize",
            load_if_exists=True,
            sampler=self._optuna.samplers.RandomSampler(),  # not asked: see _propose
            pruner=self._optuna.pruners.MedianPruner(),
        )
        plain = json.loads(json.dumps(to_plain(self.recipe)))
        if study.user_attrs.setdefault("recipe", plain) != plain:
            raise RunError(
                f"{self.folder} has a study of another recipe; choose another folder with --output"
            )
        study.set_user_attr("recipe", plain)
        return study

    def run(self, trials: int, watch: Watch | None = None) -> None:
        """Work on trials until so many are finished or taken by other processes, or the grid has no more.

        Args:
            trials: Trials of the whole study, by all processes so far; pruned and failed ones count.
            watch: Is told how training goes.

        Raises:
            TrainingError: If all trials failed.
            RunError: If the first phase (`pretrain`) of the recipe failed, or the database cannot be used.
        """
        watch = watch or Watch()
        with self._database():
            while (claim := self._claim(trials)) is not None:
                number, lock = claim
                with lock:
                    self._work(number, watch)
            with self._lock("study"):
                self._write_best()
            records = self.trials()
        if records and all(record["state"] == "fail" for record in records):
            raise TrainingError(f"all {len(records)} trials failed; the last: {records[-1]['error']}")

    def trials(self) -> list[dict[str, Any]]:
        """All trials: number, state ("complete", "pruned", "fail", "running"), value, params, error, folder.

        The value is the validation metric that the recipe selects by; none for trials that are not complete.
        """
        return [
            {
                "number": trial.number,
                "state": trial.state.name.lower(),
                "value": trial.value if trial.state.name == "COMPLETE" else None,
                "params": self._values(trial.params),
                "error": trial.user_attrs.get("error"),
                "folder": str(self._path(trial.number)),
            }
            for trial in self._study.get_trials(deepcopy=False)
        ]

    def best(self) -> dict[str, Any] | None:
        """The complete trial with the largest value, the first of equals; None if none is complete."""
        complete = [record for record in self.trials() if record["state"] == "complete"]
        return max(complete, key=lambda record: record["value"], default=None)

    def _claim(self, limit: int) -> tuple[int, TextIO] | None:
        """Take a trial that was cut off, or make a new one: its number, and a file that is locked for it."""
        state = self._optuna.trial.TrialState
        with self._lock("study"):
            trials = self._study.get_trials(deepcopy=False)
            for trial in trials:
                if trial.state == state.RUNNING and (lock := _try_lock(self._lock_path(trial.number))):
                    return trial.number, lock
            params = None
            if len(trials) < limit:
                params = self._found(len(trials)) or self._propose(trials)
            if params is None:
                return None
            lock = _try_lock(self._lock_path(len(trials)))
            assert lock is not None, "numbers are given under the lock of the study"
            # With its values at once: a trial never is without, whenever this process may die.
            made = self._optuna.trial.create_trial(
                state=state.RUNNING, params=params, distributions=self._space
            )
            self._study.add_trial(made)
            return len(trials), lock

    def _found(self, number: int) -> Params | None:
        """The values of a trial whose run is there, as after the database was lost; None if there is none."""
        path = self._path(number)
        if not (path / "recipe.yaml").exists():
            return None
        there, params = _values_of(Run.open(path).recipe), {}
        for key, choices in self._choices.items():
            for choice, value in choices.items():
                if with_values(there, {key: value}) == there:
                    params[key] = choice
        same = _values_of(with_values(self.recipe, self._values(params)).untested()) == there
        return params if same and len(params) == len(self._choices) else None

    def _propose(self, trials: list[Any]) -> Params | None:
        """A combination that was not tried yet, by Optuna's TPE; None if there is none left.

        What is proposed follows from the recipe's seed and the trials so far. Training is deterministic, so a
        combination is never worth a second trial.
        """
        tried = {tuple(trial.params[key] for key in self._choices) for trial in trials}
        seed = derive_seed(self.recipe.seed, f"tune/{len(trials)}")
        sampler = self._optuna.samplers.TPESampler(seed=seed % 2**32)
        scratch = self._optuna.create_study(direction="maximize", sampler=sampler)
        scratch.add_trials(trials)
        for _ in range(_PROPOSALS):
            params = scratch.ask(self._space).params
            if tuple(params[key] for key in self._choices) not in tried:
                return {key: params[key] for key in self._choices}
        left = [values for values in itertools.product(*self._choices.values()) if values not in tried]
        return dict(zip(self._choices, random.Random(seed).choice(left), strict=True)) if left else None

    def _work(self, number: int, watch: Watch) -> None:
        """Train one trial to its end, and tell the study."""
        state = self._optuna.trial.TrialState
        frozen = self._study.get_trials(deepcopy=False)[number]
        trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
        watch = _TrialWatch(trial, self._path(number), self.recipe.training.select, watch, self._optuna)
        outcome: dict[str, Any]
        try:
            result = train(self._trial_run(number, frozen.params, watch), watch)
            outcome = {"values": result["valid"][self.recipe.training.select], "state": state.COMPLETE}
        except self._optuna.TrialPruned:
            outcome = {"state": state.PRUNED}
        except (TrainingError, ValueError, RuntimeError) as error:  # of these values, not of the machine
            trial.set_user_attr("error", str(error) or type(error).__name__)
            watch.say(f"trial {number} failed: {error}")
            outcome = {"state": state.FAIL}
        watch.close()
        with self._lock("study"):
            self._study.tell(number, **outcome)
            if (best := self.best()) is not None and best["number"] == number:
                self._write_best()

    def _trial_run(self, number: int, params: Params, watch: Watch) -> Run:
        """The run of a trial; its first phase, if any, is trained once for all trials that share it."""
        path = self._path(number)
        recipe = with_values(self.recipe, self._values(params)).untested()
        if (path / "recipe.yaml").exists():
            run = Run.open(path)
            if _values_of(run.recipe) != _values_of(recipe):
                raise RunError(
                    f"{path} has a run of other values than trial {number} of the study: remove that folder"
                )
            return run
        if recipe.pretrain is not None and recipe.init_from is None:
            text = json.dumps(to_plain(recipe.pretrain))
            name = f"pretrain-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
            with self._lock(name):  # the first to come trains, the others wait
                first = self.folder / name
                there = (first / "recipe.yaml").exists()
                try:
                    train(Run.open(first) if there else Run.create(first, recipe.pretrain), watch)
                except TrainingError as error:  # no values of the grid would help
                    raise RunError(f"the first phase, in {first}, failed: {error}") from error
            recipe = replace(recipe, pretrain=None, init_from=str(first.resolve()))
        return Run.create(path, recipe)

    def _write_best(self) -> None:
        """Write the recipe of the best trial, for `mmb train`."""
        best = self.best()
        if best is None:
            return
        recipe = with_values(self.recipe, best["params"])
        metric = self.recipe.training.select
        note = f"Best of tuning: trial {best['number']}, {metric} {best['value']:.6f} on validation."
        plain = to_plain(replace(recipe, grid={}, note=f"{recipe.note} {note}".strip()))
        text = require("yaml", extra="training").safe_dump(plain, sort_keys=False)
        write_whole(self.folder / "best.yaml", text)

    @contextmanager
    def _database(self) -> Iterator[None]:
        """Within it, failures of the database say what to do.

        Raises:
            RunError: If it cannot be read or written.
        """
        broken = require("sqlalchemy.exc", extra="tune").DatabaseError
        try:
            yield
        except (broken, self._optuna.exceptions.StorageInternalError) as error:
            reason = getattr(error if isinstance(error, broken) else error.__cause__, "orig", error)
            path = self.folder / "study.db"
            if advice := _ADVICE.get(getattr(reason, "sqlite_errorcode", 0) & 0xFF):
                raise RunError(
                    f"cannot write {path} ({reason}): {advice}, and give the same command again"
                ) from error
            raise RunError(
                f"{path} cannot be read ({reason}): remove it, and the same command makes it anew from the "
                f"trials in {self.folder}"
            ) from error

    def _values(self, params: Params) -> dict[str, Any]:
        """What stands in the grid for what Optuna chose."""
        return {key: self._choices[key][choice] for key, choice in params.items()}

    def _path(self, number: int) -> Path:
        return self.folder / f"trial-{number:04d}"

    def _lock_path(self, number: int) -> Path:
        return self.folder / f".trial-{number:04d}.lock"

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Wait until no other process holds this lock of the study, and hold it."""
        with open(self.folder / f".{name}.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class _TrialWatch(Watch):
    """Reports a trial's evaluations to Optuna, stops it if it is worse than most, and passes all on."""

    def __init__(self, trial: Any, path: Path, metric: str, watch: Watch, optuna: Any) -> None:
        self._trial, self._path, self._metric, self._watch = trial, path, metric, watch
        self._pruned = optuna.TrialPruned
        self._known = set(trial.storage.get_trial(trial._trial_id).intermediate_values)
        self._current: Run | None = None
        self._steps = 0

    def begin(self, run: Run, step: int, steps: int) -> None:
        """Remember what is trained: it may be the first phase, whose evaluations say nothing here."""
        self._current, self._steps = run, steps
        self._watch.begin(run, step, steps)

    def note(self, message: str) -> None:
        """Pass on."""
        self._watch.note(message)

    def stepped(self, step: int, numbers: dict[str, float]) -> None:
        """Pass on."""
        self._watch.stepped(step, numbers)

    def evaluated(self, step: int, valid: dict[str, float]) -> None:
        """Report, and stop the trial if need be; the run is then as if it had been cut off here.

        Raises:
            optuna.TrialPruned: If the trial should stop.
        """
        self._watch.evaluated(step, valid)
        if step == 0 or self._current is None or self._current.path != self._path:
            return
        if step not in self._known:  # a trial that was cut off repeats what came after its checkpoint
            self._trial.report(valid[self._metric], step)
        if _SHARE_BEFORE_PRUNING * self._steps <= step < self._steps and self._trial.should_prune():
            raise self._pruned

    def end(self, run: Run, result: dict[str, Any]) -> None:
        """Pass on."""
        self._current = None
        self._watch.end(run, result)

    def close(self) -> None:
        """Tell of the end of a training that was stopped."""
        if self._current is not None:
            self.end(self._current, {})

    def say(self, message: str) -> None:
        """Pass on."""
        self._watch.say(message)


def check_grid(recipe: Recipe) -> dict[str, dict[Any, Any]]:
    """Check every value of a grid by itself.

    Returns:
        For each key of the grid, its values by what stands for them in Optuna, which knows no lists: JSON.

    Raises:
        RecipeError: If the grid is empty, or a value is not what its key takes.
    """
    choices: dict[str, dict[Any, Any]] = {}
    for key, values in recipe.grid.items():
        if not isinstance(values, list) or not values:
            raise RecipeError(f"grid: {key!r} needs a list of values to try, got {values!r}")
        for value in values:
            with_values(recipe, {key: value})
        choices[key] = {json.dumps(v) if isinstance(v, list | dict) else v: v for v in values}
    if not choices:
        raise RecipeError("there is nothing to tune: give the recipe a grid")
    return choices


def with_values(recipe: Recipe, values: Params) -> Recipe:
    """The recipe with some values of its grid.

    Args:
        recipe: The recipe.
        values: Values by keys as in the grid: one key, or several, with spaces.

    Raises:
        RecipeError: If a value is not what its key takes.
    """
    chosen = nest({key: value for keys, value in values.items() for key in keys.split()})
    return resolve(merge(to_plain(recipe), chosen))


def _values_of(recipe: Recipe) -> Recipe:
    """A recipe without where it starts, which is not a choice of the study."""
    return replace(recipe, pretrain=None, init_from=None)


def _try_lock(path: Path) -> TextIO | None:
    """Open a file and lock it until it is closed; None if another process has it."""
    file = open(path, "w")  # noqa: SIM115 -- the caller closes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
