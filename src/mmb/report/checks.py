"""Is it working? What the log and the scores of a run show, in words, with what to do about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from mmb import metrics
from mmb._names import first_few
from mmb.auc import ThresholdReport
from mmb.report.comparison import AREAS, area_samples
from mmb.report.intervals import FEWEST
from mmb.report.selected_scores import SelectedScores
from mmb.training import Run

_SMALL_SPREAD = 0.05  # of logits


class Check(NamedTuple):
    """One thing that was checked: its status, a title of a few words, and what was found and what to do."""

    status: Literal["good", "remark", "bad"]
    title: str
    text: str


@dataclass(frozen=True)
class RunFacts:
    """All that the checks look at."""

    run: Run
    finished: bool  # whether it had its result when its scores were read
    log: Sequence[dict[str, Any]]  # the lines of its log
    scores: SelectedScores  # scores of its selected weights
    max_fpr: float  # limit of the partial AUC
    tracked: dict[int, ThresholdReport]  # tracked thresholds by step
    rates: Tensor  # false positive rate on test rows of each task, at the thresholds of the validation rows
    highest: Tensor  # upper end of each task's interval of the AUC; NaN if it has none


def check_run(facts: RunFacts) -> dict[str, Any]:
    """A `"verdict"` of one sentence, its `"status"`, and the `"checks"` as dicts."""
    checks = [*_progress(facts), *_thresholds(facts), *_duals(facts), *_tasks(facts)]
    bad = [found.title for found in checks if found.status == "bad"]
    remarks = [found.title for found in checks if found.status == "remark"]
    if bad:
        status, verdict = "bad", f"Not working: {bad[0]}."
    elif remarks:
        status, verdict = "remark", f"Working, but see: {'; '.join(remarks)}."
    else:
        status, verdict = "good", "Working: it learned, and nothing stands out."
    return {"status": status, "verdict": verdict, "checks": [found._asdict() for found in checks]}


def _progress(facts: RunFacts) -> Iterator[Check]:
    """Whether it ran to its end, learned, leveled off, and generalizes to new rows."""
    run, log, logits, labels = facts.run, facts.log, facts.scores.logits, facts.scores.labels
    if not facts.finished:
        text = (
            f"The log ends at step {log[-1]['step'] if log else 0}; the page shows the best weights so far, "
            f"of step {facts.scores.step}. Continue with `mmb resume`; if the run stopped with an error, its "
            "message says what to change."
        )
        yield Check("remark", "not finished", text)
    select = run.recipe.training.select
    name = select if select in AREAS else "auc"
    curve = [record[name] for record in log if record["kind"] == "valid" and record[name] is not None]
    if len(curve) < 2:
        yield Check("remark", "too few evaluations", "Set training.evaluate_every lower to see a curve.")
        return
    noise = area_samples(logits["valid"], labels["valid"], facts.max_fpr)[name].mean(labels["valid"])
    error = float(noise.estimate().variance.sqrt())
    yield from _learning(curve, error, f"validation {metrics.METRICS[name].title}", facts.finished)
    spread = float(logits["valid"].float().std(0).median())
    if spread < _SMALL_SPREAD:
        text = (
            f"The logits of a typical task differ by only {spread:.3f} (standard deviation) between rows. "
            "Objectives that see only the top negatives get stuck there on hard tasks: start from a model "
            "trained with method=ce, raise objective.max_fpr, or, with method=mb, set objective.anneal=100."
        )
        yield Check("remark", "all rows have nearly the same score", text)
    limit = facts.max_fpr if name == "pauc" else None
    train, test = (
        float(metrics.roc_auc(logits[part], labels[part], limit).nanmean()) for part in ("train", "test")
    )
    text = f"Mean {metrics.METRICS[name].title}: {train:.3f} on training rows, {test:.3f} on test rows."
    if train - test > 0.1:
        advice = "More weight decay or dropout, fewer steps or a smaller network may help."
        yield Check("remark", "fits training rows better than test rows", f"{text} {advice}")
    else:
        yield Check("good", "generalizes to test rows", text)


def _learning(curve: list[float], error: float, name: str, finished: bool) -> Iterator[Check]:
    """Whether a curve of validation values rose, and how it ended."""
    first, best, last = curve[0], max(curve), curve[-1]
    said = f"The {name} went from {first:.3f} to {best:.3f} at its best (standard error {error:.3f})."
    if best - first > 3 * error:  # the best of many evaluations is high by chance alone
        yield Check("good", "learned", said)
    elif first - 0.5 > 4 * error:
        yield Check("remark", "did not improve on its start", f"{said} The start was good already.")
    elif not finished:
        yield Check("remark", "has not learned yet", said)
        return
    else:
        advice = (
            "Try another optimizer.lr (ten times higher, then lower), more steps, or method=ce to compare."
        )
        yield Check("bad", "does not learn", f"{said} {advice}")
        return
    before = curve[-max(2, len(curve) // 5 + 1)]
    if last == best and last - before > max(error, 0.005):
        text = f"The {name} still rose by {last - before:.3f} over the last evaluations: train longer."
        yield Check("remark", "still improving", text)
    elif best - last > 2 * error:
        text = f"The {name} fell from {best:.3f} to {last:.3f}; the weights of the best evaluation are used."
        yield Check("remark", "past its best at the end", f"{text} training.patience stops in time.")
    else:
        yield Check("good", "leveled off", f"The last evaluation gave {last:.3f}, the best {best:.3f}.")


def _thresholds(facts: RunFacts) -> Iterator[Check]:
    """Whether the tracked thresholds keep up with the scores."""
    if not facts.tracked:
        return
    step = min(facts.tracked, key=lambda one: abs(one - facts.scores.step))
    aim = facts.run.recipe.objective.get("max_fpr", facts.max_fpr)
    found = facts.tracked[step]
    soft, hard = (float(rate.double().nanmedian()) for rate in (found.soft_rate, found.rate))
    text = (
        f"At step {step}, the smoothed share of training negatives above the tracked threshold was "
        f"{soft:.1%} in a typical task; the target is {aim:.1%}. Without smoothing it is {hard:.1%}"
    )
    if not aim / 2 <= soft <= 2 * aim:
        advice = "Raise objective.lr_threshold or lower optimizer.lr; training.warm_start=true helps early."
        yield Check("remark", "thresholds lag behind", f"{text}. {advice}")
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
        yield Check("remark", "duals lag behind", f"{text} {advice}")


def _tasks(facts: RunFacts) -> Iterator[Check]:
    """Whether decisions hold on test rows, and which tasks need a second look."""
    names, labels = facts.scores.task_names, facts.scores.labels
    positives, negatives = ((labels["test"] == sign).sum(0) for sign in (1, 0))
    aim = facts.max_fpr
    noise = (aim * (1 - aim) * (1 / negatives + 1 / (labels["valid"] == 0).sum(0))).sqrt()
    known = facts.rates.isfinite() & noise.isfinite()
    off = known & ((facts.rates - aim).abs() > 3 * noise)
    count, total = int(off.sum()), int(known.sum())
    text = (
        f"At thresholds set on validation rows, the false positive rate on test rows is within three "
        f"standard errors of {aim:g} for {total - count} of {total} tasks."
    )
    if total and count > max(1, 0.02 * total):
        advice = f"Test rows score differently than validation rows: {_some(names, off)}."
        yield Check("remark", "decisions shift on test rows", f"{text} {advice}")
    elif total:
        yield Check("good", "decisions hold on test rows", text)
    worse = facts.highest < 0.5
    if worse.any():
        text = f"Ranked worse than by chance: {_some(names, worse)}. Are their labels the right way around?"
        yield Check("remark", "some tasks are worse than chance", text)
    few = torch.minimum(positives, negatives) < FEWEST
    if few.any():
        text = (
            f"{int(few.sum())} of {len(names)} tasks have fewer than {FEWEST} test positives or negatives; "
            f"they get no interval, and their numbers say little: {_some(names, few)}."
        )
        yield Check("remark", "some tasks have few test rows", text)


def _some(names: list[str], mask: Tensor) -> str:
    """The first few names where a mask is true."""
    return first_few([name for name, chosen in zip(names, mask.tolist(), strict=True) if chosen])
