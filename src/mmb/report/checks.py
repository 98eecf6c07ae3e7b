"""Is it working? What the log and the scores of a run say, in words, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mmb import metrics
from mmb.report.comparison import samples
from mmb.report.intervals import FEWEST
from mmb.report.scores import Scores
from mmb.training import Run
from mmb.training.loop.threshold_log import Tracked

Status = Literal["good", "remark", "bad"]
TITLES = {"auc": "AUC", "pauc": "partial AUC"}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        status: How it is.
        title: What it is about, a few words.
        text: What was found, and what to do if it is not good.
    """

    status: Status
    title: str
    text: str


@dataclass(frozen=True)
class Facts:
    """All that the checks look at.

    Attributes:
        run: The run.
        log: The lines of its log.
        scores: Scores of its selected weights.
        max_fpr: Limit of the partial AUC.
        tracked: Tracked thresholds by step.
        rates: False positive rate on test rows of each task, at the thresholds of the validation rows.
        highest: Upper end of each task's interval of the AUC; NaN where it has none.
    """

    run: Run
    log: Sequence[dict[str, Any]]
    scores: Scores
    max_fpr: float
    tracked: dict[int, Tracked]
    rates: Tensor
    highest: Tensor


def check(facts: Facts) -> dict[str, Any]:
    """Look at a run.

    Returns:
        `"verdict"`: one sentence, `"status"`: of the whole, `"checks"`: a list of `Check` as dicts.
    """
    checks = [*_progress(facts), *_blocks(facts), *_tasks(facts)]
    bad = [found for found in checks if found.status == "bad"]
    remarks = [found for found in checks if found.status == "remark"]
    if bad:
        status, verdict = "bad", f"Not working: {bad[0].title}."
    elif remarks:
        what = "; ".join(found.title for found in remarks)
        status, verdict = "remark", f"Working, but see: {what}."
    else:
        status, verdict = "good", "Working: it learned, and nothing stands out."
    return {"status": status, "verdict": verdict, "checks": [asdict(found) for found in checks]}


def _progress(facts: Facts) -> Iterator[Check]:
    """Whether it ran to its end, learned, levelled off, and carries over to new rows."""
    run, log = facts.run, facts.log
    step = log[-1]["step"] if log else 0
    if not run.finished:
        yield Check(
            "remark",
            "not finished",
            f"The log ends at step {step}; shown are the best weights so far, of step {facts.scores.step}. "
            f"Continue with `mmb resume`; if it stopped with an error, its message says what to change.",
        )
    name = "auc" if run.recipe.training.select == "ap" else run.recipe.training.select
    curve = [record[name] for record in log if record["kind"] == "valid" and record[name] is not None]
    if len(curve) < 2:
        yield Check("remark", "too few evaluations", "Set training.evaluate_every lower to see a curve.")
        return
    labels = facts.scores.labels["valid"]
    noise = samples(facts.scores.logits["valid"], labels, facts.max_fpr)[name].mean(labels)
    error = float(noise.estimate().variance.sqrt())
    yield from _learning(curve, error, f"validation {TITLES[name]}", run.finished)
    spread = float(facts.scores.logits["valid"].float().std(0).median())
    if spread < 0.05:
        text = (
            f"The logits of a typical task differ by only {spread:.3f} (standard deviation) between rows. "
            "Objectives that see the top negatives alone get stuck there on hard tasks: start from a model "
            "trained with method=ce, raise objective.max_fpr, or, with method=mb, set objective.anneal=100."
        )
        yield Check("remark", "all rows score alike", text)
    areas = {
        part: float(
            metrics.roc_auc(
                facts.scores.logits[part],
                facts.scores.labels[part],
                facts.max_fpr if name == "pauc" else None,
            ).nanmean()
        )
        for part in ("train", "test")
    }
    both = f"Mean {TITLES[name]}: {areas['train']:.3f} on training rows, {areas['test']:.3f} on test rows."
    if areas["train"] - areas["test"] > 0.1:
        advice = " More weight decay or dropout, fewer steps or a smaller network may help."
        yield Check("remark", "fits training rows better than test rows", both + advice)
    else:
        yield Check("good", "carries over to test rows", both)


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
            "Try another optimizer.lr (ten times higher, then lower), more steps, or method=ce as a check."
        )
        yield Check("bad", "does not learn", f"{said} {advice}")
        return
    before = curve[-max(2, len(curve) // 5 + 1)]
    if last == best and last - before > max(error, 0.005):
        text = f"The {name} still rose by {last - before:.3f} over the last evaluations: train longer."
        yield Check("remark", "still improving", text)
    elif best - last > 2 * error:
        text = (
            f"The {name} fell from {best:.3f} to {last:.3f}; the weights of the best evaluation were taken."
        )
        yield Check("remark", "past its best at the end", f"{text} training.patience stops in time.")
    else:
        yield Check("good", "levelled off", f"The last evaluation gave {last:.3f}, the best {best:.3f}.")


def _blocks(facts: Facts) -> Iterator[Check]:
    """Whether the objective's own variables keep up: thresholds and duals."""
    objective = facts.run.recipe.objective
    if facts.tracked:
        step = min(facts.tracked, key=lambda one: abs(one - facts.scores.step))
        aim = objective.get("max_fpr", facts.max_fpr)
        found = facts.tracked[step]
        soft, hard = (float(rate.double().nanmedian()) for rate in (found.soft_rate, found.rate))
        text = (
            f"At step {step}, the smoothed share of training negatives above the tracked threshold was "
            f"{soft:.1%} in a typical task; {aim:.1%} is aimed at. Without smoothing it is {hard:.1%}"
        )
        if not aim / 2 <= soft <= 2 * aim:
            advice = (
                "Raise objective.lr_threshold or lower optimizer.lr; training.warm_start=true helps early."
            )
            yield Check("remark", "thresholds lag behind", f"{text}. {advice}")
        elif not aim / 2 <= hard <= 2 * aim:
            advice = "a lower objective.tau1 brings the two together."
            yield Check("good", "thresholds keep up", f"{text}: {advice}")
        else:
            yield Check("good", "thresholds keep up", f"{text}.")
    errors = [record["dual_error"] for record in facts.log if record.get("dual_error") is not None]
    if errors:
        limit = 0.1 * objective.get("margin", 1.0)
        text = f"Duals are {errors[-1]:.3f} from where they belong, on average over tasks."
        if errors[-1] <= limit:
            yield Check("good", "duals keep up", text)
        else:
            yield Check(
                "remark", "duals lag behind", f"{text} Raise objective.lr_dual, or lower optimizer.lr."
            )


def _tasks(facts: Facts) -> Iterator[Check]:
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
        text = f"Ranked worse than by chance: {_some(names, worse)}. Are their labels the right way round?"
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
    chosen = mask.nonzero().flatten().tolist()
    return ", ".join(names[k] for k in chosen[:5]) + (
        f" and {len(chosen) - 5} more" if len(chosen) > 5 else ""
    )
