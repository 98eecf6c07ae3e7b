"""Is it working? What the log and the scores of a run show, in words, with what to do about it."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mmb._names import first_few
from mmb.report.check import Check, verdict_of
from mmb.report.curve_checks import better_step_size, check_divergence, check_shape, curve_values
from mmb.report.intervals import FEWEST
from mmb.report.run_facts import PARTS, RunFacts

_SMALL_SPREAD = 0.05  # of logits
_OVERFIT = 0.05  # more than this lost from training to test rows, beyond noise
_SURE = 0.75  # no random weights rank this well
_BACKWARDS = 0.35  # nor this badly, unless labels are turned around
_LABELS = (
    "check that labels belong to their rows: a file sorted or joined wrongly, another meaning of 0 and 1, "
    "ids among the inputs."
)


def check_run(facts: RunFacts) -> dict[str, Any]:
    """A `"verdict"` of one sentence, its `"status"`, the `"advice"` and the `"checks"` as dicts."""
    checks = list(check_divergence(facts.log))
    if not checks:
        checks = [*_learning(facts), *_thresholds(facts), *_duals(facts), *_bounds(facts)]
        if not any(check.status == "bad" for check in checks):
            checks += [*_tasks(facts), *_decisions(facts)]
    if not facts.finished:
        text = (
            f"The log ends at step {facts.log[-1]['step'] if facts.log else 0}; the page shows the best "
            f"weights so far, of step {facts.scores.step}."
        )
        checks.append(Check("remark", "it is not finished", text, "Continue with `mmb resume`."))
    return verdict_of(checks, f"Working: {facts.said('test')} on test rows.")


def _learning(facts: RunFacts) -> Iterator[Check]:
    """Whether it learned its training rows, and whether that carries over to new rows."""
    curve = curve_values(facts.log, facts.metric)
    train, valid, test = (facts.evidence[part][0] for part in PARTS)
    backwards = _backwards(facts)
    if backwards is not None:
        yield backwards
        return
    said = f"{facts.said('train')} on training rows, {facts.said('test')} on test rows."
    if not bool(train.enough) and not bool(train.above):
        yield _too_few(facts, "train", said)
        return
    start = curve_values(facts.log, "auc")[:1]
    noise = 3 * float((train.error.square() + valid.chance_error.square()).sqrt())
    compared = bool(start) and bool(valid.enough)
    risen = not compared or float(train.auc) - start[0] > noise
    if bool(train.near) or not (bool(train.above) and (risen or float(train.auc) > _SURE)):
        if bool(valid.enough):
            yield from _not_learned(facts, said)
        else:  # other weights may have learned
            yield _too_few(facts, "valid", f"They selected the weights of step {facts.scores.step}. {said}")
        return
    yield Check("good", "learned its training rows", said)
    if not bool(test.enough):
        yield _too_few(facts, "test", said)
        return
    if bool(test.near):
        text = f"{said} New rows are ranked as by chance."
        advice = f"First, {_LABELS} If they do: fewer steps, more weight decay, more training rows."
        yield Check("bad", "nothing it learned carries over to new rows", text, advice)
        return
    yield _generalization(facts, said)
    if not bool(valid.enough):
        text = f"Weights are selected by {int(valid.positives)} positives among the validation rows."
        advice = "Give the validation rows more positives, or evaluate only at the end."
        yield Check("remark", "its weights are selected by chance", text, advice)
    elif len(trained := curve[:-1] if facts.run.recipe.branches else curve) > 1:  # not of their average
        error = float(facts.areas["valid"].variance.sqrt())
        yield from check_shape(trained, error, facts.metric, facts.finished)


def _backwards(facts: RunFacts) -> Check | None:
    """Whether new rows are ranked worse than by chance, by the selected weights or ever more in training."""
    valid, test = facts.evidence["valid"][0], facts.evidence["test"][0]
    curve = curve_values(facts.log, "auc")
    noise = 3 * float(valid.chance_error)
    parts = []
    if len(curve) > 1 and curve[-1] < min(_BACKWARDS, curve[0] - noise):
        parts.append(f"validation rows (AUC from {curve[0]:.3f} to {curve[-1]:.3f})")
    if bool(test.below) and bool(facts.evidence["train"][0].above):
        parts.append(f"test rows (AUC {float(test.auc):.3f})")
    if not parts:
        return None
    text = f"Worse than chance on {' and '.join(parts)}: the labels mean the opposite of the training labels."
    return Check("bad", "it ranks new rows backwards", text, _LABELS.capitalize())


def _too_few(facts: RunFacts, part: str, said: str) -> Check:
    """Too few rows of a part of the data to tell how good it is."""
    found, labels = facts.evidence[part][0], facts.scores.labels[part]
    sign = "positive" if int((labels == 1).sum()) <= int((labels == 0).sum()) else "negative"
    rows = {"train": "training rows", "valid": "validation rows", "test": "test rows"}[part]
    shown = "Better than chance" if bool(found.above) else "Not told from chance"
    text = f"{said} {shown} on {rows}, but they are too few to say how good it is."
    advice = f"Split the data so that each task has tens of {sign}s among these rows, or get more."
    count = int(found.positives)
    return Check("unknown", f"{count} {sign}{'s' * (count != 1)} among the {rows}", text, advice)


def _not_learned(facts: RunFacts, said: str) -> Iterator[Check]:
    """Training rows are ranked no better than at the start, or than by chance."""
    curve = curve_values(facts.log, "auc")
    best, noise = max(curve, default=0.5), float(facts.evidence["valid"][0].error)
    if curve and curve[0] > _SURE and best - curve[0] <= 3 * noise:
        text = f"{said} The start had a validation AUC of {curve[0]:.3f} already."
        yield Check("remark", "it did not improve on its start", text, "Try another optimizer.lr.")
    elif not facts.finished:
        yield Check("remark", "it has not learned yet", said)
    else:
        advice = f"{better_step_size(facts.log)} Compare with method=ce. If nothing learns: {_LABELS}"
        yield Check("bad", "it does not learn", said, advice)
    spread = float(facts.scores.logits["train"].float().std(0).median())
    if spread < _SMALL_SPREAD:
        text = f"The logits of a typical task differ by only {spread:.3f} (standard deviation) between rows."
        advice = (
            "Objectives that see only the top negatives get stuck there: start from a model trained with "
            "method=ce, raise objective.max_fpr, or, with method=mb, set objective.anneal=100."
        )
        yield Check("remark", "all rows have nearly the same score", text, advice)


def _generalization(facts: RunFacts, said: str) -> Check:
    """Whether training rows are ranked better than test rows by more than noise."""
    train, test = facts.areas["train"], facts.areas["test"]
    lost = float(train.value - test.value)
    noise = 2 * float((train.variance + test.variance).sqrt())
    if lost - noise > _OVERFIT and not bool(facts.backwards.any()):
        advice = (
            "Raise optimizer.weight_decay or model.dropout, train fewer steps, use a smaller network, or get "
            "more rows."
        )
        return Check("remark", "it overfits", f"{said} It loses {lost:.3f} on new rows.", advice)
    return Check("good", "generalizes to test rows", said)


def _thresholds(facts: RunFacts) -> Iterator[Check]:
    """Whether the tracked thresholds keep up with the scores."""
    if not facts.tracked:
        return
    step = min(facts.tracked, key=lambda one: abs(one - facts.scores.step))
    aim = _stated_rate(facts)
    found = facts.tracked[step]
    soft, hard = (float(rate.double().nanmedian()) for rate in (found.soft_rate, found.rate))
    text = (
        f"At step {step}, the smoothed share of training negatives above the tracked threshold was "
        f"{soft:.1%} in a typical task; the target is {aim:.1%}. Without smoothing it is {hard:.1%}"
    )
    if not aim / 2 <= soft <= 2 * aim:
        advice = "Raise objective.lr_threshold or lower optimizer.lr; training.warm_start=true helps early."
        yield Check("remark", "thresholds lag behind", f"{text}.", advice)
    elif not aim / 2 <= hard <= 2 * aim:
        advice = "a lower objective.tau1 brings the two together."
        yield Check("good", "thresholds keep up", f"{text}: {advice}")
    else:
        yield Check("good", "thresholds keep up", f"{text}.")


def _duals(facts: RunFacts) -> Iterator[Check]:
    """Whether the dual variables keep up with the scores."""
    errors = [record["dual_error"] for record in facts.log if record.get("dual_error") is not None]
    if not errors:
        return
    text = f"Duals are {errors[-1]:.3f} from their best values, on average over tasks."
    if errors[-1] <= 0.1 * facts.run.recipe.objective.get("margin", 1.0):
        yield Check("good", "duals keep up", text)
    else:
        advice = "Raise objective.lr_dual, or lower optimizer.lr."
        yield Check("remark", "duals lag behind", text, advice)


def _bounds(facts: RunFacts) -> Iterator[Check]:
    """Whether the tasks keep a bound on their false positive rates."""
    shares = [record["feasible"] for record in facts.log if record.get("feasible") is not None]
    if not shares:
        return
    text = (
        f"At the end, the decision `logit > 0` keeps the bound of {_stated_rate(facts):.1%} on the false "
        f"positive rate of training rows in {shares[-1]:.0%} of the tasks."
    )
    if shares[-1] >= 0.5:
        yield Check("good", "bounds are kept", text)
    else:
        yield Check("remark", "bounds are not kept", text, "Train longer, or raise objective.lr_dual.")


def _stated_rate(facts: RunFacts) -> float:
    """The false positive rate that the objective is for, or the first part of it that says."""
    options = facts.run.recipe.objective
    stated = (one.get("max_fpr", one.get("fpr")) for one in (options, *options.get("parts", {}).values()))
    return next((rate for rate in stated if rate is not None), facts.max_fpr)


def _tasks(facts: RunFacts) -> Iterator[Check]:
    """Which tasks need a second look, although the mean over tasks is good."""
    names, test = facts.scores.task_names, facts.evidence["test"][1]
    known = facts.evidence["train"][1]
    backwards = test.below & (known.above | ~known.below)
    chance = test.near & test.enough & ~backwards
    for found, title in (
        (backwards, "some tasks are ranked backwards"),
        (chance, "some tasks are at chance"),
    ):
        if found.any() and not found.all():
            text = f"On test rows: {_some(names, found)}. The other tasks are better."
            yield Check(
                "remark", title, text, f"{_LABELS.capitalize()} Or the inputs say nothing about these tasks."
            )
    few = test.positives < FEWEST
    if few.any() and bool(facts.evidence["test"][0].enough):
        text = (
            f"{int(few.sum())} of {len(names)} tasks have fewer than {FEWEST} test positives or negatives; "
            f"they get no interval, and their numbers say little: {_some(names, few)}."
        )
        yield Check("remark", "some tasks have few test rows", text)


def _decisions(facts: RunFacts) -> Iterator[Check]:
    """Whether thresholds that were set on validation rows hold on test rows."""
    labels, aim = facts.scores.labels, facts.max_fpr
    noise = sum(1 / (labels[part] == 0).sum(0) for part in ("valid", "test"))
    noise = (aim * (1 - aim) * torch.as_tensor(noise)).sqrt()
    rates = torch.tensor([math.nan if rate is None else rate for rate in facts.decisions["fpr"]])
    known = rates.isfinite() & noise.isfinite()
    off = known & ((rates - aim).abs() > 4 * noise)
    count, total = int(off.sum()), int(known.sum())
    text = (
        f"At thresholds set on validation rows, the false positive rate on test rows is within four "
        f"standard errors of {aim:g} for {total - count} of {total} tasks."
    )
    if total and (2 * count >= total or count > max(1, 0.02 * total)):  # one of many may be chance
        text += f" Test rows score differently than validation rows: {_some(facts.scores.task_names, off)}."
        advice = "Split the rows at random, or set thresholds on rows like those to decide on."
        yield Check("remark", "decisions shift on test rows", text, advice)
    elif total:
        yield Check("good", "decisions hold on test rows", text)


def _some(names: list[str], mask: Tensor) -> str:
    """The first few names where a mask is true."""
    return first_few([name for name, chosen in zip(names, mask.tolist(), strict=True) if chosen])
