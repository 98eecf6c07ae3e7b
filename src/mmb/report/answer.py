"""The answer that a page opens with: which method, by how much, and how certain that is."""

from collections.abc import Sequence
from typing import Any

from mmb.metrics import MetricName

SIGNIFICANT = 0.05


def answer(
    methods: Sequence[dict[str, Any]],
    pairs: Sequence[dict[str, Any]],
    runs: Sequence[dict[str, Any]],
    main: MetricName,
    max_fpr: float,
) -> dict[str, str]:
    """The sentences `"what"` and `"sure"`, from the content of a page; the first pairs are the winner's."""
    title = "AUC" if main == "auc" else f"partial AUC (FPR \N{LESS-THAN OR EQUAL TO} {max_fpr:g})"
    best = pairs[0]["a"] if pairs else 0
    value = methods[best][main]
    if value["value"] is None:
        return {
            "what": "No task has both classes among the test rows, so there is nothing to compare.",
            "sure": "Split the data so that test rows have positives and negatives.",
        }
    reached = f"a mean {title} of {_with_interval(value)}"
    if not pairs:
        verdicts = [run["verdict"] for run in runs]
        many = f"{len(runs)} runs. " if len(runs) > 1 else ""
        return {
            "what": f"{methods[best]['name']} reaches {reached} on test rows.",
            "sure": f"{many}{verdicts[0]} There is only one method: give more runs to compare.",
        }
    own = [pair for pair in pairs if pair["a"] == best]
    clear = [pair for pair in own if _is_clear(pair[main])]
    unclear = [pair for pair in own if not _is_clear(pair[main])]
    nearest = min(own, key=lambda pair: pair[main]["value"])
    lead = f"{_signed(nearest[main]['value'])} over {methods[nearest['b']]['name']}"
    if not unclear:
        what = f"{methods[best]['name']} is best, with {reached}, {lead}."
        sure = f"Sure: significantly more than {_names(methods, clear)}."
    else:
        what = f"{methods[best]['name']} comes first with {reached}, {lead}, which may be noise."
        sure = f"Not sure: the lead over {_names(methods, unclear)} is not significant."
        if clear:
            sure += f" That over {_names(methods, clear)} is."
    interval = nearest[main]
    if interval["low"] is not None:
        sure += f" 95% interval of the lead: {_signed(interval['low'])} to {_signed(interval['high'])}"
        sure += f"; p {_p(interval['adjusted'])}, adjusted for {2 * len(pairs)} comparisons."
    return {"what": what, "sure": sure + _doubt(methods, runs, best)}


def _doubt(methods: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]], best: int) -> str:
    """What the test cannot know: noise of training, and runs that do not work."""
    parts = []
    if any(method["runs"] == 1 for method in methods):
        parts.append(" Methods with a single run: the noise of training (seeds) is not in it.")
    wrong = {run["method"] for run in runs if run["status"] == "bad"}
    if wrong:
        names = ", ".join(methods[index]["name"] for index in sorted(wrong))
        parts.append(f" Runs of {names} do not work: the comparison is not fair to them.")
    if any(run["status"] == "unknown" for run in runs if run["method"] == best):
        parts.append(" Positives are few.")
    return "".join(parts)


def _is_clear(found: dict[str, Any]) -> bool:
    return found["adjusted"] is not None and found["adjusted"] < SIGNIFICANT


def _names(methods: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> str:
    names = [methods[pair["b"]]["name"] for pair in pairs]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _with_interval(found: dict[str, Any]) -> str:
    interval = f" ({found['low']:.3f} to {found['high']:.3f})" if found["low"] is not None else ""
    return f"{found['value']:.3f}{interval}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
