"""The training loop: the same for every objective, and readable from top to bottom."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from mmb.training.loop import threshold_log
from mmb.training.loop.evaluate import TrainingError, evaluate_part, recalibrate
from mmb.training.loop.initial_weights import prepare_start
from mmb.training.loop.observer import Observer
from mmb.training.loop.outcome import finish
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, find_device, make_setup
from mmb.training.loop.step import make_step
from mmb.training.processes.group import Ranks, joined
from mmb.training.runs import checkpoint
from mmb.training.runs.fingerprints import changed, first_change, recipe_facts
from mmb.training.runs.log import NoLog, RunLog
from mmb.training.runs.predict import columns_for
from mmb.training.runs.run import Run, RunError


@dataclass
class Progress:
    """The counters of the loop, part of every checkpoint.

    Attributes:
        step: Steps done.
        best_step: Step of the best evaluation so far.
        best: Its value; minus infinity before the first.
        since_best: Evaluations since then.
        stopped: Whether training ended early.
        seconds: Time spent on the run so far, by all processes that worked on it.
        log_position: Length of the log.
    """

    step: int = 0
    best_step: int | None = None
    best: float = -math.inf
    since_best: int = 0
    stopped: bool = False
    seconds: float = 0.0
    log_position: int = 0


def train(
    run: Run, observer: Observer | None = None, *, at_once: int = 1, only_best: bool = False
) -> dict[str, Any]:
    """Train a run to its end, from its newest checkpoint if it has one.

    Processes that `torchrun` started, each of which must call this, train it together.

    Args:
        run: The run.
        observer: Is told how it goes.
        at_once: Number of runs that share this machine meanwhile; kept in the result if it is not one.
        only_best: Whether the finished run keeps only the checkpoint of its selected weights.

    Returns:
        The result, as in `result.json`.

    Raises:
        TrainingError: If the loss is no longer a number.
        CheckpointError: If a checkpoint cannot be written, or none can be read.
        RunError: If another process is training this run, or its data or recipe has changed since its
            checkpoint.
        ProcessError: If the processes that train it together disagree, or one is lost.
        ValueError: If the recipe's options do not fit its data.
    """
    if run.finished:
        return run.result()
    settings = run.recipe.training
    device = find_device(settings.device)
    with joined(device) as ranks, run.locked(ranks.is_main), own_randomness(run.recipe.seed, device):
        observer = observer if observer is not None and ranks.is_main else Observer()
        saved = checkpoint.load_newest(run.checkpoints, observer.say, ranks)
        if saved is None and run.recipe.pretrain is not None:
            train(ranks.main_first(run.pretraining), observer)
        setup, progress = make_setup(run.recipe, ranks), Progress()
        if saved is not None:
            if problem := changed(saved.get("data", {}), setup.data_facts):
                raise RunError(f"{run.path}: {problem}; put the data back, or start another run")
            if found := first_change(saved.get("recipe", {}), recipe_facts(run.recipe)):
                raise RunError(
                    f"{run.path}: its recipe has changed since its checkpoint: {found}; put that back, or "
                    "start another run"
                )
            setup.load_state_dict(saved.pop("job"))  # and let go of it
            progress = Progress(**saved["progress"])
        else:
            warn_of_names(setup)
            prepare_start(run, setup)
        evaluate_every = settings.evaluate_every or setup.steps_per_epoch
        checkpoint_every = settings.checkpoint_every or evaluate_every
        take_step = make_step(setup)
        if note := setup.objective.memory_note():
            observer.note(note)
        observer.begin(run, progress.step, setup.steps)
        with open_log(run, progress, ranks) as log:
            clock = Clock(progress)
            if saved is None:
                size = {"steps": setup.steps, "steps_per_epoch": setup.steps_per_epoch}
                log.write("start", 0, {**size, "block_bytes": setup.objective.memory_bytes()})
                evaluate(run, setup, progress, log, observer)
                save(run, setup, progress, log)
            left = 0 if progress.stopped else max(0, setup.steps - progress.step)
            for batch in islice(setup.feed, left):
                setup.set_step_sizes(progress.step)
                setup.window.add(take_step(batch))
                progress.step += 1
                last = progress.step == setup.steps
                if progress.step % settings.log_every == 0 or last:
                    means = setup.window.take()
                    check_finite(means["loss"], setup, progress)
                    clock.update()
                    lr = float(setup.optimizer.param_groups[0]["lr"])
                    log.write("train", progress.step, {**means, "lr": lr, "seconds": progress.seconds})
                    observer.stepped(progress.step, means)
                better = False
                if progress.step % evaluate_every == 0 or last:
                    clock.update()
                    better = evaluate(run, setup, progress, log, observer)
                if better or last or progress.stopped or progress.step % checkpoint_every == 0:
                    clock.update()
                    save(run, setup, progress, log)
                if progress.stopped:
                    break
        facts = {"at_once": at_once} if at_once > 1 else {}
        result = finish(run, setup, progress.step, progress.best_step, progress.seconds, facts, only_best)
        observer.end(run, result)
        return result


def warn_of_names(setup: Setup) -> None:
    """Warn of tasks whose names prediction would refuse, while nothing is trained yet."""
    if setup.dataset.encoder is not None:
        try:
            columns_for(setup.dataset.task_names)
        except RunError as error:
            warnings.warn(f"`mmb predict` will refuse this run: {error}", stacklevel=2)


def open_log(run: Run, progress: Progress, ranks: Ranks) -> RunLog:
    """The log of a run where it continues, for the process that writes it."""
    if not ranks.is_main:
        return NoLog()
    return RunLog(run.path, progress.log_position, progress.step, run.recipe.training.tensorboard)


def evaluate(run: Run, setup: Setup, progress: Progress, log: RunLog, observer: Observer) -> bool:
    """Evaluate on the validation rows; True if that is the best so far."""
    settings = setup.recipe.training
    setup.objective.average_running_statistics(setup.model)
    if settings.batch_norm == "recalibrate":
        recalibrate(setup)
    valid = setup.ranks.from_main(evaluate_part(setup, "valid"))
    value = valid[settings.select]
    if math.isnan(value):
        raise ValueError(
            "no task has both a positive and a negative among the validation rows, so no weights can be "
            "selected: give the data another split"
        )
    log.write("valid", progress.step, {**valid, "seconds": progress.seconds})
    threshold_log.record(run.path, setup, progress.step)
    observer.evaluated(progress.step, valid)
    better = value > progress.best
    if better:
        progress.best, progress.best_step, progress.since_best = value, progress.step, 0
    else:
        progress.since_best += 1
    progress.stopped = settings.patience is not None and progress.since_best >= settings.patience
    return better


def save(run: Run, setup: Setup, progress: Progress, log: RunLog) -> None:
    """Write a checkpoint, and delete those that are no longer needed."""
    progress.log_position = log.sync()
    setup.objective.average_running_statistics(setup.model)
    state = {
        "job": setup.state_dict(),
        "progress": asdict(progress),
        "data": setup.data_facts,
        "recipe": recipe_facts(run.recipe),
    }
    checkpoint.save(run.checkpoints, progress.step, state, progress.best_step, setup.ranks)
    if setup.ranks.is_main:
        checkpoint.prune(run.checkpoints, run.recipe.training.keep_checkpoints, progress.step)


def check_finite(loss: float, setup: Setup, progress: Progress) -> None:
    """Stop when the loss is no longer a number.

    Raises:
        TrainingError: Saying what to change.
    """
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} at step {progress.step}: lower optimizer.lr (now "
            f"{setup.recipe.optimizer.lr:g}) or set optimizer.clip, and train anew"
        )


class Clock:
    """Keeps the time spent on a run, over all processes that worked on it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._started = time.perf_counter() - progress.seconds

    def update(self) -> None:
        """Write the time spent so far into the progress."""
        self._progress.seconds = time.perf_counter() - self._started
