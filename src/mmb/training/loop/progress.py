"""How far a run is, and what happens now and then: evaluations and checkpoints."""

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

from mmb.metrics import METRICS
from mmb.training.loop import threshold_log
from mmb.training.loop.evaluate import evaluate_part, recalibrate, training_metrics
from mmb.training.loop.observer import Observer
from mmb.training.loop.setup import Setup
from mmb.training.runs import checkpoint
from mmb.training.runs.fingerprints import changed, first_change, recipe_facts
from mmb.training.runs.log import RunLog
from mmb.training.runs.run import Run, RunError

_NOTHING_TO_TELL = "no task has both a positive and a negative among the validation rows"
_LAST_WEIGHTS = "the last weights of all phases were taken, and branches have equal shares in their average"
_OTHER_SPLIT = "give the data another split, such as data.split=stratified for your own data"


@dataclass
class Progress:
    """The counters of the loop, part of every checkpoint."""

    step: int = 0  # steps done
    best_step: int | None = None  # step of the best evaluation so far
    best: float = -math.inf  # its value, or minus the value where lower is better
    first: float = math.nan  # that of the initial weights; in a fresh branch, of the start of the others
    since_best: int = 0  # evaluations since then
    stopped: bool = False  # whether training ended early
    seconds: float = 0.0  # time spent, by all processes that worked on the run one after the other
    log_position: int = 0  # length of the log

    def __post_init__(self) -> None:
        self._started = time.perf_counter() - self.seconds

    def take_time(self) -> None:
        """Bring the time spent up to date."""
        self.seconds = time.perf_counter() - self._started


def evaluate(
    run: Run, setup: Setup, progress: Progress, log: RunLog, observer: Observer, in_average: bool = False
) -> bool:
    """Evaluate on the validation rows; True if that is the best so far.

    It is an error if they cannot tell, unless the run is a phase of one with branches (`in_average`) or has
    branches itself: then the newest weights count as the best, in all phases and in their average.
    """
    settings = setup.recipe.training
    setup.objective.average_running_statistics(setup.model)
    if settings.batch_norm == "recalibrate":
        recalibrate(setup)
    valid = setup.ranks.from_main(evaluate_part(setup, "valid"))
    value = METRICS[settings.select].gain(valid[settings.select])
    if math.isnan(value):
        if run.recipe.branches:
            observer.say(f"{_NOTHING_TO_TELL}: {_LAST_WEIGHTS}; to select any, {_OTHER_SPLIT}")
        elif not in_average:
            raise ValueError(f"{_NOTHING_TO_TELL}, so no weights can be selected: {_OTHER_SPLIT}")
    found = {**valid, **training_metrics(setup), "seconds": progress.seconds}
    log.write("valid", progress.step, found)
    threshold_log.record(run.path, setup, progress.step)
    observer.evaluated(progress.step, valid)
    better = math.isnan(value) or value > progress.best
    if better:
        progress.best, progress.best_step, progress.since_best = value, progress.step, 0
    else:
        progress.since_best += 1
    if progress.step == 0:
        progress.first = _value_of_start(run) if run.recipe.fresh else value
    impatient = settings.patience is not None and progress.since_best >= settings.patience
    in_second_half = progress.step >= setup.steps / 2
    weak = settings.stop_below is not None and value < progress.first - settings.stop_below
    progress.stopped = impatient or (weak and in_second_half)
    return better


def _value_of_start(run: Run) -> float:
    """The validation metric of the run that other branches start from; NaN if it measures another one."""
    assert run.recipe.init_from is not None
    settings, found = run.recipe.training, Run.open(run.recipe.init_from).result()
    value = found["valid"].get(settings.select) if found["max_fpr"] == settings.max_fpr else None
    return math.nan if value is None else METRICS[settings.select].gain(value)


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


def resume(run: Run, setup: Setup, saved: dict[str, Any]) -> Progress:
    """Put the parts of a run back to where `save` left them; their state leaves `saved`."""
    problem = changed(saved.get("data", {}), setup.data_facts)
    found = first_change(saved.get("recipe", {}), recipe_facts(run.recipe))
    if found and not problem:
        problem = f"its recipe has changed since its checkpoint: {found}"
    if problem:
        raise RunError(f"{run.path}: {problem}; undo that, or start another run")
    setup.load_state_dict(saved.pop("job"))
    return Progress(**saved["progress"])
