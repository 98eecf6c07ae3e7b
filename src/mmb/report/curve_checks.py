"""Is it working? What the log of a run shows, also while it trains."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from mmb.metrics import METRICS, MetricName
from mmb.report.check import Check
from mmb.training.runs.log import validation_curve

_BLOWN_UP = 5.0  # times the highest loss of the first half; min-max losses may rise, but level off
_STILL = 0.02  # a validation AUC that changes by less has not moved
_LOWER = "Divide optimizer.lr by ten: lower optimizer.lr until the loss falls, or set optimizer.clip=1."


def curve_values(log: Sequence[dict[str, Any]], name: MetricName) -> list[float]:
    """The values of a metric at the evaluations, those that are known."""
    return [value for _, value in validation_curve(log, name)]


def check_divergence(log: Sequence[dict[str, Any]]) -> Iterator[Check]:
    """Whether the numbers of training blew up."""
    failed = next((line for line in log if line["kind"] == "error"), None)
    if failed is not None and failed["error"] == "TrainingError":
        text = f"Training ended after step {failed['step']}: {failed['message']}."
        yield Check("bad", "it diverged", text, _LOWER)
        return
    losses = _losses(log)
    highest, last = max(losses[: len(losses) // 2], default=0.0), _at_end(losses)
    if last > _BLOWN_UP * highest:
        text = f"The training loss was at most {highest:.3g} in the first half, and {last:.3g} at the end."
        yield Check("bad", "it diverges", text, _LOWER)


def better_step_size(log: Sequence[dict[str, Any]]) -> str:
    """Advice on the step size for a run that does not learn."""
    losses = _losses(log)
    first, last = max(losses[:1], default=0.0), _at_end(losses)
    curve = curve_values(log, "auc")
    if 0 < 2 * last < first:  # a jump at the start
        return f"{_LOWER} The loss of the first steps was {first:.3g}, and {last:.3g} at the end."
    if curve and max(curve) - min(curve) < _STILL:
        return "Hardly anything moved: raise optimizer.lr, ten times at first."
    return "Try optimizer.lr ten times higher, then lower."


def _losses(log: Sequence[dict[str, Any]]) -> list[float]:
    """The sizes of the training loss."""
    return [abs(line["loss"]) for line in log if line["kind"] == "train" and line.get("loss") is not None]


def _at_end(losses: Sequence[float]) -> float:
    """The median of the last quarter; zero of fewer than four."""
    quarter = len(losses) // 4
    return median(losses[-quarter:]) if quarter else 0.0


def check_shape(curve: Sequence[float], noise: float, name: MetricName, finished: bool) -> Iterator[Check]:
    """How a curve of validation values ends; `noise` is the standard error of a value."""
    gains = [METRICS[name].gain(value) for value in curve]
    title = f"validation {METRICS[name].title}"
    best, last = max(gains), gains[-1]
    before = gains[-max(2, len(gains) // 5 + 1)]
    if last == best and last - before > max(noise, 0.005):
        text = f"The {title} still improved by {last - before:.3f} over the last evaluations."
        if finished:
            yield Check("remark", "it was still improving", text, "Train longer: raise training.steps.")
        else:
            yield Check("good", "still improving", text)
    elif best - last > max(2 * noise, 0.01):
        text = (
            f"The {title} went from {abs(best):.3f} at its best to {abs(last):.3f}; the weights of the best "
            "evaluation are used."
        )
        if best - last > (best - gains[0]) / 2:
            yield Check("remark", "it collapsed after its best", text, _LOWER)
        else:
            advice = "Stop in time with training.patience=5, or lower optimizer.lr."
            yield Check("remark", "it is past its best at the end", text, advice)
    else:
        yield Check(
            "good", "leveled off", f"The last evaluation gave {abs(last):.3f}, the best {abs(best):.3f}."
        )
