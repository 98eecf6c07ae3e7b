"""One network from the branches of a run: the average of their weights, chosen on the validation rows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmb import soup
from mmb.metrics import METRICS, MetricName
from mmb.training.loop.evaluate import CalibrationInputs, evaluate_part, measured_logits, recalibrate
from mmb.training.loop.observer import Observer
from mmb.training.loop.outcome import finish
from mmb.training.loop.progress import Progress, evaluate, save
from mmb.training.loop.randomness import own_randomness
from mmb.training.loop.setup import Setup, find_device, make_setup
from mmb.training.processes.group import Ranks
from mmb.training.recipes.recipe import SHARED_START
from mmb.training.runs import checkpoint
from mmb.training.runs.log import NoLog, RunLog, read_log
from mmb.training.runs.run import Run
from mmb.training.runs.scoring import plain_means, task_metrics

# Standard errors by which an average must be better than what it started from, and the point halfway.
_WHOLE, _HALFWAY = 1.0, 0.25
_CLEARLY = 3.0  # standard errors by which a gain is beyond noise
_MOST_LABELS = 2_000_000  # of validation rows for which a metric is computed on twenty folds of them


def conclude(
    run: Run,
    start: Run,
    branches: Mapping[str, Run],
    ranks: Ranks,
    observer: Observer,
    facts: dict[str, Any],
    only_best: bool,
) -> dict[str, Any]:
    """Average the finished branches of a run, evaluate the average, and write its checkpoint and result.

    Steps and seconds are those of the first phase and all branches together; the log begins with the first
    phase.
    """
    results = [one.result() for one in (start, *branches.values())]
    steps, seconds = (sum(result[key] for result in results) for key in ("steps", "seconds"))
    progress = Progress(steps, seconds=seconds)
    with own_randomness(run.recipe.seed, find_device(run.recipe.training.device)):
        setup = make_setup(run.recipe, ranks)
        observer.begin(run, steps, steps)
        found = average_branches(setup, branches)
        if run.recipe.soup.start:
            found = as_far_as_supported(setup, found, start, branches)
        facts = {**facts, "branches": branch_facts(setup, found, start, branches)}
        setup.model.load_state_dict(found.model.state_dict())
        log_from = (run.path, 0, 0, run.recipe.training.tensorboard)
        with RunLog(*log_from) if ranks.is_main else NoLog() as log:
            log.write("start", 0, {"steps": steps, "steps_per_epoch": setup.steps_per_epoch})
            for record in read_log(start.path):
                if record.pop("kind") == "valid":
                    log.write("valid", record.pop("step"), record)
            progress.take_time()
            evaluate(run, setup, progress, log, observer)
            save(run, setup, progress, log)
        result = finish(run, setup, progress, facts, only_best)
    observer.end(run, result)
    return result


def average_branches(setup: Setup, branches: Mapping[str, Run]) -> soup.Soup:
    """Average the weights of finished branches, as the recipe of the setup says, or take a fresh one.

    Branches that were stopped early are left out, unless the first branch was stopped, too: then the start
    was lucky, and stopping early says nothing. A branch that another one continues is left out as well.
    """
    settings = setup.recipe.soup
    continued = {branch.recipe.init_from for branch in branches.values()}
    ends = [name for name, branch in branches.items() if str(branch.path.resolve()) not in continued]
    fresh = [name for name in ends if branches[name].recipe.fresh]
    related = [name for name in ends if name not in fresh]
    stopped = {name for name in related if branches[name].result().get("stopped_early")}
    kept = related if related[0] in stopped else [name for name in related if name not in stopped]
    states = {name: branch_weights(branches[name], setup) for name in (*kept, *fresh)}
    options, values = _averaging(setup), validation_values(setup)
    with setup.autocast():
        together = {name: states[name] for name in kept}
        found = soup.uniform(together, **options)
        if settings.rule == "greedy" and not values(found.model).isnan().all():
            chosen = soup.greedy(together, values, guard=0.0, **options)
            found = soup.better(found, chosen, values, guard=settings.guard)
        for name in fresh:
            alone = soup.uniform({name: states[name]}, **options)
            found = soup.better(found, alone, values)
    return found


def as_far_as_supported(setup: Setup, found: soup.Soup, start: Run, branches: Mapping[str, Run]) -> soup.Soup:
    """The average, the point halfway to it, or the start: as far as the validation rows support going.

    Where cross-entropy overfits early, every branch goes further in that direction. With few validation rows
    no single metric shows that, so several are taken together. Halfway there is more than half of the gain,
    and less to lose. A fresh branch does not begin at the start, so it is taken as a whole or not at all.
    """
    first = soup.uniform({SHARED_START: start_weights(start, setup)}, like=setup.model)
    values = validation_values(setup, "auc", "pauc")
    with setup.autocast():
        before = values(first.model)
        if not soup.evidence(values(found.model), before) <= _WHOLE:  # also if there is nothing to tell
            return found
        if any(branches[name].recipe.fresh for name in branches if name in found.picked):
            return first
        half = halfway(setup, found, start, branches)
        return half if soup.evidence(values(half.model), before) > _HALFWAY else first


def clear_gain(run: Run, start: Run, branch: Run, ranks: Ranks) -> float:
    """What a branch gains in partial AUC over its start on the validation rows; zero if it may be noise."""
    with own_randomness(run.recipe.seed, find_device(run.recipe.training.device)):
        setup = make_setup(run.recipe, ranks)
        values, found = validation_values(setup, "auc", "pauc"), []
        with setup.autocast():
            for weights in (start_weights(start, setup), branch_weights(branch, setup)):
                found.append(values(soup.uniform({SHARED_START: weights}, like=setup.model).model))
    if not soup.evidence(found[1], found[0]) > _CLEARLY:
        return 0.0
    place = list(dict.fromkeys((run.recipe.training.select, "auc", "pauc"))).index("pauc")
    return float((found[1] - found[0])[place].nanmean())


def halfway(setup: Setup, found: soup.Soup, start: Run, branches: Mapping[str, Run]) -> soup.Soup:
    """The point between the start and an average of its branches."""
    shares = {SHARED_START: 0.5}
    weights = {SHARED_START: start_weights(start, setup)}
    for name, branch in branches.items():
        if name in found.picked:
            shares[name], weights[name] = found.weights[name] / 2, branch_weights(branch, setup)
    return soup.uniform(weights, weights=shares, **_averaging(setup))


def _averaging(setup: Setup) -> dict[str, Any]:
    """Arguments for averages of branches: statistics of batch normalization are computed.

    A start that was selected after a few steps is near random weights, and branches go far from there.
    """
    frozen = setup.recipe.training.batch_norm == "frozen"
    batches = None if frozen else CalibrationInputs(setup)
    return {"like": setup.model, "batches": batches, "same_start": True}


def branch_weights(branch: Run, setup: Setup) -> dict[str, Tensor]:
    """The weights at the end of a branch, where its step size is zero; of a fresh one, those it selected."""
    last = checkpoint.steps(branch.checkpoints)[-1]
    return _weights(branch.best_checkpoint() if branch.recipe.fresh else last, setup)


def start_weights(start: Run, setup: Setup) -> dict[str, Tensor]:
    """The weights that all branches start from: those that the first phase selected."""
    return _weights(start.best_checkpoint(), setup)


def _weights(path: Path, setup: Setup) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = checkpoint.load_selected(path, setup.ranks)["job"]["model"]
    return {name: value.to(setup.dataset.device) for name, value in weights.items()}


def validation_values(setup: Setup, *also: MetricName) -> Callable[[nn.Module], Tensor]:
    """Metrics of any network on the validation rows, `[metrics, n]`: of folds of rows, or of each task.

    They are the one that selects weights, and those in `also`. Higher is better: a metric of which less is
    better changes its sign. Folds measure noise better. Where they would take long, the spread between tasks
    takes their place.
    """
    rows, settings = setup.dataset.split["valid"], setup.recipe.training
    names = dict.fromkeys((settings.select, *also))

    def metrics(logits: Tensor, labels: Tensor) -> Tensor:
        found = task_metrics(logits, labels, settings.max_fpr, settings.select)
        signed = [found[name] if METRICS[name].higher_is_better else -found[name] for name in names]
        return torch.stack(signed)

    def values(model: nn.Module) -> Tensor:
        logits, labels = measured_logits(setup, rows, model)
        folds = labels.numel() <= _MOST_LABELS
        found = soup.jackknife(metrics, logits, labels) if folds else metrics(logits, labels)
        return setup.ranks.from_main(found)

    return values


def branch_facts(
    setup: Setup, found: soup.Soup, start: Run, branches: Mapping[str, Run]
) -> dict[str, dict[str, Any]]:
    """What a result says of the start and each branch: its share, length, time, and metrics at its end."""
    training, facts = setup.recipe.training, {}
    parts = ("valid", "test") if training.test else ("valid",)
    for name, run in {SHARED_START: start, **branches}.items():
        weights = (start_weights if run is start else branch_weights)(run, setup)
        result = run.result()
        kept = ("method", "steps", "seconds", "stopped_early")
        setup.model.load_state_dict(weights)
        if training.batch_norm == "recalibrate":
            recalibrate(setup)
        facts[name] = {
            "share": found.weights.get(name, 0.0),
            **{key: result[key] for key in kept if key in result},
            **{part: plain_means(evaluate_part(setup, part)) for part in parts},
        }
    return facts
