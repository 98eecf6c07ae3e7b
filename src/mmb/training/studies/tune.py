"""Tuning: try values of a recipe's grid, keep the best on the validation rows.

A study is a folder: `study.journal` (Optuna), a run in `trial-N` for combination N of the grid, `best.yaml`.
Any number of processes may work on it, also on machines that share the folder.

Optuna keeps the trials, proposes their values, hands them out (a trial waits, and the first process that asks
runs it) and prunes them. Two things that it does not do are done here, with file locks:

- Count, propose and enqueue in one step. Between the three, another process could propose the same values or
  pass the number of trials. So processes take turns (`_alone`).
- See at once that a process has died. Optuna's heartbeat needs a database (and SQLite does not work on shared
  file systems), waits for a grace period while a user repeats a command at once, counts the trial as failed
  and makes another one. Here a process locks a file while it runs a trial (`_try_lock`). The system frees the
  lock when the process dies. The next process that looks for work lets the trial wait again, asks Optuna for
  it, and continues its run from the newest checkpoint.
"""

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mmb._atomic_files import write_whole, writing
from mmb._extras import require
from mmb.metrics import METRICS
from mmb.training.loop.evaluate import TrainingError
from mmb.training.loop.loop import train
from mmb.training.loop.observer import Observer
from mmb.training.loop.randomness import derive_seed
from mmb.training.processes.workers import Workers
from mmb.training.recipes.nested import told_apart
from mmb.training.recipes.presets import grid_of
from mmb.training.recipes.recipe import Recipe
from mmb.training.recipes.resolution import to_plain
from mmb.training.runs.run import Run, RunError
from mmb.training.studies.grid import Grid, check_grid, with_values

_PROPOSALS = 20  # of the sampler, before an untried combination is drawn at random
_SHARE_BEFORE_PRUNING = 0.25  # of the steps: small step sizes start slowly


class TuningStudy:
    """The folder of a study, made or found again.

    Args:
        folder: The folder.
        recipe: What is tuned; without a grid, the paper's for its method is used.

    Raises:
        RecipeError: If the grid is empty or has a value that its key cannot take; nothing is written then.
        RunError: If the folder has a study of another recipe, or its journal is damaged.
        ImportError: If Optuna is not installed.

    Attributes:
        folder: The folder.
        recipe: The recipe, with the grid.
    """

    def __init__(self, folder: Path | str, recipe: Recipe) -> None:
        self._optuna = require("optuna", extra="tune")
        self._states = self._optuna.trial.TrialState
        self.folder, self.recipe = Path(folder), replace(recipe, grid=grid_of(recipe))
        self._direction = "maximize" if METRICS[recipe.training.select].higher_is_better else "minimize"
        self._grid = Grid(check_grid(self.recipe))
        categories = self._optuna.distributions.CategoricalDistribution
        self._space = {key: categories(places) for key, places in self._grid.choices.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            self._study = self._open()

    def _open(self) -> Any:
        path = self.folder / "study.journal"
        journal = self._optuna.storages.journal
        lock = journal.JournalFileOpenLock(str(path))  # needs only files, and works on Windows
        _mend(path, lock)
        try:
            self._storage = self._optuna.storages.JournalStorage(journal.JournalFileBackend(str(path), lock))
        except (ValueError, KeyError) as error:
            raise self._damaged(str(error)) from error
        study = self._optuna.create_study(
            study_name="mmb",
            storage=self._storage,
            direction=self._direction,
            load_if_exists=True,
            sampler=self._optuna.samplers.RandomSampler(),  # not asked: see _propose
            pruner=self._optuna.pruners.MedianPruner(),
        )
        plain = to_plain(self.recipe)
        if "recipe" not in study.user_attrs:
            study.set_user_attr("recipe", plain)
        if study.user_attrs["recipe"] != plain:
            what = told_apart(study.user_attrs["recipe"], plain)
            raise RunError(
                f"{self.folder} has a study of another recipe, which differs in {what}: choose another "
                "folder with --output"
            )
        return study

    def _damaged(self, problem: str) -> RunError:
        return RunError(
            f"{self.folder / 'study.journal'} is damaged ({problem}): move it elsewhere, and the same "
            f"command makes it again from the trials in {self.folder}"
        )

    def run(self, trials: int, observer: Observer | None = None, jobs: int = 1) -> None:
        """Work on trials until enough are finished or taken by other processes, or the grid has no more.

        Args:
            trials: Trials of the whole study, by all processes so far; pruned and failed ones count.
            observer: Called by each training in this process.
            jobs: Trials at a time, each in its own process; a single one is trained in this process.

        Raises:
            TrainingError: If all trials failed.
            RunError: If the first phase (`pretrain`) of the recipe failed, or a process was killed.
            WriteError: If the journal cannot be written.
        """
        if jobs > 1:
            self._run_many(trials, jobs)
        while (asked := self._ask(trials)) is not None:
            trial, lock = asked
            with lock:
                self._work(trial, observer or Observer())
        with self._alone():
            self._write_best()
        records = self.trials()
        if records and all(record["state"] == "fail" for record in records):
            raise TrainingError(f"all {len(records)} trials failed; the last: {records[-1]['error']}")

    def _run_many(self, trials: int, jobs: int) -> None:
        """Let some processes work on the study until nothing is left to do."""
        with Workers(partial(_work_on, self.folder, self.recipe), jobs) as workers:
            try:
                workers.do_all([trials] * jobs)
            except Exception as error:
                raise RunError(f"{self.folder}: {error}") from error

    def trials(self) -> list[dict[str, Any]]:
        """All trials: number, state, value, params, error, folder.

        The state is "complete", "pruned", "fail", "running" or "waiting" (one that was cut off). The number
        is that of the combination of values in the grid. The value is the validation metric that the recipe
        selects by; none for trials that are not complete.
        """
        return [
            {
                "number": self._grid.number(trial.params),
                "state": trial.state.name.lower(),
                "value": trial.value if trial.state == self._states.COMPLETE else None,
                "params": self._grid.values(trial.params),
                "error": trial.user_attrs.get("error"),
                "folder": str(self._path(trial.params)),
            }
            for trial in self._study.get_trials(deepcopy=False)
        ]

    def best(self) -> dict[str, Any] | None:
        """The complete trial with the best value, the first of equals; None if none is complete.

        RunError if the journal, which has no checksums, has another value than the run of a trial.
        """
        return next(iter(self.ranked()), None)

    def ranked(self) -> list[dict[str, Any]]:
        """The complete trials, the best first; RunError as for `best`."""
        complete = [record for record in self.trials() if record["state"] == "complete"]
        for record in complete:
            run = Run(Path(record["folder"]), self.recipe)
            if run.finished and run.result()["valid"][self.recipe.training.select] != record["value"]:
                raise self._damaged(f"{run.path} has another value than {record['value']}")
        gain = METRICS[self.recipe.training.select].gain
        return sorted(complete, key=lambda record: -gain(record["value"]))

    def _ask(self, limit: int) -> tuple[Any, AbstractContextManager[object]] | None:
        """Ask for a trial, first for one that was cut off, and lock it; None if all are done."""
        with self._alone():
            trials = self._study.get_trials(deepcopy=False)
            for trial in trials:
                if trial.state == self._states.RUNNING and (lock := self._try_lock(trial)):
                    with lock:  # no process runs it: a trial that waits is handed out again
                        self._storage.set_trial_state_values(trial._trial_id, self._states.WAITING)
            if not self._study.get_trials(deepcopy=False, states=(self._states.WAITING,)):
                params = self._propose(trials) if len(trials) < limit else None
                if params is None:
                    return None
                # With its values at once: a trial never lacks them, whenever this process may die.
                waiting = self._optuna.trial.create_trial(
                    state=self._states.WAITING, params=params, distributions=self._space
                )
                self._study.add_trial(waiting)
            trial = self._study.ask()
            lock = self._try_lock(trial)
            assert lock is not None, "trials are asked for by one process at a time"
            return trial, lock

    def _propose(self, trials: list[Any]) -> dict[str, int] | None:
        """An untried combination: one that has a run, after the journal was lost, or by Optuna's TPE.

        The proposal follows from the recipe's seed and the trials so far. Training is deterministic, so a
        combination is never worth a second trial. None if all were tried.
        """
        tried = {self._grid.number(trial.params) for trial in trials}
        untried = [self._grid.places(n) for n in range(len(self._grid)) if n not in tried]
        if not untried:
            return None
        there = {path.parent for path in self.folder.glob("trial-*/recipe.yaml")}
        if found := [places for places in untried if self._path(places) in there]:
            return found[0]
        seed = derive_seed(self.recipe.seed, f"tune/{len(trials)}")
        sampler = self._optuna.samplers.TPESampler(seed=seed % 2**32)
        scratch = self._optuna.create_study(direction=self._direction, sampler=sampler)
        scratch.add_trials(trials)
        for _ in range(_PROPOSALS):
            params: dict[str, int] = scratch.ask(self._space).params
            if params in untried:
                return params
        return random.Random(seed).choice(untried)

    def _work(self, trial: Any, observer: Observer) -> None:
        """Train one trial to its end, and tell the study."""
        metric = self.recipe.training.select
        outcome: dict[str, Any]
        try:
            run = self._trial_run(trial, observer)
            result = train(run, _TrialObserver(trial, metric, observer, self._optuna.TrialPruned))
            outcome = {"values": result["valid"][metric], "state": self._states.COMPLETE}
        except self._optuna.TrialPruned:
            outcome = {"state": self._states.PRUNED}
        except (TrainingError, ValueError, RuntimeError) as error:  # due to these values, not the machine
            trial.set_user_attr("error", str(error) or type(error).__name__)
            observer.say(f"trial {self._grid.number(trial.params)} failed: {error}")
            outcome = {"state": self._states.FAIL}
        with self._alone():
            self._study.tell(trial, **outcome)
            self._write_best()

    def _trial_run(self, trial: Any, observer: Observer) -> Run:
        """The run of a trial; its first phase, if any, is trained once for all trials that share it."""
        path = self._path(trial.params)
        recipe = with_values(self.recipe, self._grid.values(trial.params)).untested()
        if (path / "recipe.yaml").exists():
            run = Run.open(path)
            # where it starts from is not a choice of the study
            if replace(run.recipe, pretrain=recipe.pretrain, init_from=recipe.init_from) != recipe:
                raise RunError(
                    f"{path} has a run of other values than that trial: move that folder elsewhere"
                )
            return run
        if recipe.pretrain is not None and recipe.init_from is None:
            text = json.dumps(to_plain(recipe.pretrain))
            first = self.folder / f"pretrain-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
            with FileLock(self.folder / f".{first.name}.lock"):  # one process trains, the others wait
                try:
                    train(Run.find(first, recipe.pretrain), observer)
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
    def _alone(self) -> Iterator[None]:
        """A context that one process at a time enters, to change the study."""
        with writing(self.folder / "study.journal"), FileLock(self.folder / ".study.lock"):
            yield

    def _try_lock(self, trial: Any) -> AbstractContextManager[object] | None:
        """Lock a trial until the context ends; None if another process works on it."""
        name = self._path(trial.params).name
        try:
            return FileLock(self.folder / f".{name}.lock").acquire(blocking=False)
        except Timeout:
            return None

    def _path(self, places: Mapping[str, int]) -> Path:
        """The folder of the run of a combination."""
        return self.folder / f"trial-{self._grid.number(places):04d}"


class _TrialObserver(Observer):
    """Reports a trial's evaluations to Optuna, stops it if it is worse than most, and passes all on."""

    def __init__(self, trial: Any, metric: str, observer: Observer, pruned: type[Exception]) -> None:
        self._trial, self._metric, self._observer, self._pruned = trial, metric, observer, pruned
        self._known = set(trial.storage.get_trial(trial._trial_id).intermediate_values)
        self._steps = 0
        for name in ("paced", "stepped", "end", "note", "say"):
            setattr(self, name, getattr(observer, name))

    def begin(self, run: Run, step: int, steps: int) -> None:
        self._steps = steps
        self._observer.begin(run, step, steps)

    def evaluated(self, step: int, valid: dict[str, float]) -> None:
        """Report, and stop the trial if need be; the run is then as if it had been cut off here."""
        self._observer.evaluated(step, valid)
        if step > 0 and step not in self._known:  # a trial that was cut off repeats some evaluations
            self._trial.report(valid[self._metric], step)
        if _SHARE_BEFORE_PRUNING * self._steps <= step < self._steps and self._trial.should_prune():
            raise self._pruned


def _mend(path: Path, lock: Any) -> None:
    """Remove the last line of a journal if a crash cut it off: Optuna would append to it."""
    if path.exists():
        lock.acquire()
        try:
            content = path.read_bytes()
            if not content.endswith(b"\n"):
                write_whole(path, content[: content.rfind(b"\n") + 1].decode())
        finally:
            lock.release()


def _work_on(folder: Path, recipe: Recipe, trials: int) -> None:
    """Work on a study in another process, where Optuna prints nothing."""
    optuna = require("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    TuningStudy(folder, recipe).run(trials)
