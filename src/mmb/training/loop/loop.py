"""The training loop, the same for every objective."""

import math
import warnings
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

import torch

from mmb._renamed import renamed_arguments
from mmb.auc import BadValueError
from mmb.cuda_graphs import WARM_UP
from mmb.data.encoders import check_encoder
from mmb.training.loop.branches import train_branches
from mmb.training.loop.evaluate import diverged
from mmb.training.loop.initial_weights import prepare_start
from mmb.training.loop.make_step import make_step
from mmb.training.loop.observer import Observer
from mmb.training.loop.outcome import finish
from mmb.training.loop.pace import Pace
from mmb.training.loop.progress import Progress, evaluate, resume, save
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, find_device, make_setup
from mmb.training.loop.step import Step
from mmb.training.loop.stopping import stop_requests
from mmb.training.processes.group import Ranks, joined
from mmb.training.processes.workers import Workers
from mmb.training.runs import checkpoint
from mmb.training.runs.log import NoLog, RunLog
from mmb.training.runs.own_versions import KEY, own_versions
from mmb.training.runs.prediction_tables import task_columns
from mmb.training.runs.run import Run, RunError


@renamed_arguments(watch="observer")
def train(
    run: Run, observer: Observer | None = None, *, at_once: int = 1, only_best: bool = False, jobs: int = 1
) -> dict[str, Any]:
    """Train a run to its end, from its newest checkpoint if it has one.

    Processes that `torchrun` started, each of which must call this, train it together. In a single process,
    Ctrl-C and SIGTERM end training after the current step, with a checkpoint; a second one ends it at once.

    Args:
        run: The run.
        observer: Follows the training.
        at_once: Number of runs that share this machine; the result has it if it is more than one.
        only_best: Whether the finished run keeps only the checkpoint of its selected weights.
        jobs: Branches that are trained at a time, each in its own process.

    Returns:
        The result, as in `result.json`.

    Raises:
        TrainingError: If the loss or a score is not finite.
        CheckpointError: If a checkpoint cannot be written, or none can be read.
        RunError: If another process is training this run, or its data or recipe is not that of its
            checkpoint.
        ProcessError: If the processes that train it together disagree, or one is lost.
        ValueError: If the recipe's options do not fit its data.
    """
    if run.finished:
        return run.result()
    with joined(find_device(run.recipe.training.device)) as ranks:
        return train_together(run, ranks, observer, at_once, only_best, jobs)


def train_together(
    run: Run,
    ranks: Ranks,
    observer: Observer | None = None,
    at_once: int = 1,
    only_best: bool = False,
    jobs: int = 1,
    in_average: bool = False,
) -> dict[str, Any]:
    """As `train`, in processes that have already joined; `in_average` for a phase of a run with branches."""
    if run.finished:
        return run.result()
    if run.recipe.branches:
        train_phases = partial(_train_phases, ranks=ranks, observer=observer, at_once=at_once, jobs=jobs)
        return train_branches(run, ranks, observer, train_phases, at_once, only_best)
    settings = run.recipe.training
    with run.locked(ranks.is_main), own_randomness(run.recipe.seed, find_device(settings.device)):
        observer = observer if observer is not None and ranks.is_main else Observer()
        setup, progress = _begin(run, ranks, observer)
        take_step = make_step(setup, observer.say, setup.steps - progress.step, note=observer.note)
        if note := setup.objective.memory_note():
            observer.note(note)
        observer.begin(run, progress.step, setup.steps)
        log_from = (run.path, progress.log_position, progress.step, settings.tensorboard)
        with RunLog(*log_from) if ranks.is_main else NoLog() as log, closing(take_step):
            _take_steps(take_step, run, setup, progress, log, observer, in_average)
        facts = {"at_once": at_once} if at_once > 1 else {}
        facts |= {"stopped_early": True} if progress.stopped else {}
        result = finish(run, setup, progress, facts, only_best)
        observer.end(run, result)
        return result


def _begin(run: Run, ranks: Ranks, observer: Observer) -> tuple[Setup, Progress]:
    """The parts of a run and how far it is, by its newest checkpoint if it has one."""
    saved = checkpoint.load_newest(run.checkpoints, observer.say, ranks)
    if saved is None and run.recipe.pretrain is not None:
        train_together(ranks.main_first(run.pretraining), ranks, observer)
    setup, progress = make_setup(run.recipe, ranks), Progress()
    if saved is not None:
        return setup, resume(run, setup, saved)
    check_encoder(setup.dataset)
    warn_of_names(setup)
    prepare_start(run, setup)
    return setup, progress


def _take_steps(
    take_step: Step,
    run: Run,
    setup: Setup,
    progress: Progress,
    log: RunLog,
    observer: Observer,
    in_average: bool,
) -> None:
    """Take the remaining steps, and log, evaluate and save now and then."""
    settings = setup.recipe.training
    evaluate_every = settings.evaluate_every or setup.steps_per_epoch
    checkpoint_every = settings.checkpoint_every or evaluate_every
    device = setup.dataset.device
    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    pace = Pace(evaluate_every, wait, warm_up=WARM_UP + 1 if setup.captured else 1)
    if progress.best_step is None:  # nothing was evaluated yet
        size = {"steps": setup.steps, "steps_per_epoch": setup.steps_per_epoch}
        facts = {KEY: own} if (own := own_versions(setup.recipe)) else {}
        log.write("start", 0, {**size, "block_bytes": setup.objective.memory_bytes()}, facts)
        with pace.evaluation():
            evaluate(run, setup, progress, log, observer, in_average)
        save(run, setup, progress, log)
    left = 0 if progress.stopped else max(0, setup.steps - progress.step)
    with stop_requests(setup.ranks.size == 1) as stop:
        for batch in islice(setup.feed, left):
            setup.set_step_sizes(progress.step)
            try:
                setup.window.add(take_step(batch))
            except BadValueError as error:
                raise diverged(f"step {progress.step + 1}, {error}", setup) from error
            progress.step += 1
            if take_step.unusual:
                pace.restart()
            if (seconds := pace.after_step(setup.steps - progress.step)) is not None:
                observer.paced(run, seconds)
            last = progress.step == setup.steps
            if progress.step % settings.log_every == 0 or last:
                means = setup.window.take()
                check_finite(means["loss"], progress.step, setup)
                progress.take_time()
                lr = float(setup.optimizer.param_groups[0]["lr"])
                log.write("train", progress.step, {**means, "lr": lr, "seconds": progress.seconds})
                observer.stepped(progress.step, means)
            better = False
            if progress.step % evaluate_every == 0 or last:
                progress.take_time()
                with pace.evaluation():
                    better = evaluate(run, setup, progress, log, observer, in_average)
            due = better or last or progress.stopped or progress.step % checkpoint_every == 0
            if due or stop:
                check_finite(setup.window.loss(), progress.step, setup)  # or the checkpoint is bad
                progress.take_time()
                save(run, setup, progress, log)
            stop.stop()
            if progress.stopped:
                break


def check_finite(loss: float, step: int, setup: Setup) -> None:
    """Refuse a loss that is not finite: on a GPU, or with many processes, it is seen only when it is read."""
    if not math.isfinite(loss):
        raise diverged(f"the loss is {loss} at step {step}", setup)


def _train_phases(
    phases: Sequence[Run], ranks: Ranks, observer: Observer | None, at_once: int, jobs: int
) -> None:
    """Train phases of a run with branches, several at a time, each in its own process, if asked to."""
    waiting = [phase for phase in phases if not phase.finished]
    if jobs > 1 and len(waiting) > 1 and ranks.size == 1:
        with Workers(partial(_train, at_once=jobs), min(jobs, len(waiting))) as workers:
            workers.do_all(waiting)
    for phase in phases:
        train_together(phase, ranks, observer, at_once, in_average=True)


def _train(run: Run, at_once: int) -> None:
    with joined(find_device(run.recipe.training.device)) as ranks:
        train_together(run, ranks, at_once=at_once, in_average=True)


def warn_of_names(setup: Setup) -> None:
    """Warn, before training, about task names that prediction would refuse."""
    if setup.dataset.encoder is not None:
        try:
            task_columns(setup.dataset.task_names)
        except RunError as error:
            warnings.warn(f"`mmb predict` will refuse this run: {error}", stacklevel=2)
