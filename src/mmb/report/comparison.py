"""Methods side by side on the same test rows: which differences are more than noise."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from mmb import metrics
from mmb.report.influence import row_influence
from mmb.report.intervals import Sample, UncertainValue, benjamini_hochberg, holm, row_freedom
from mmb.report.page_values import rounded

AREAS = {short: metrics.SHORT_NAMES[short] for short in ("auc", "pauc")}
"""The metrics that get intervals."""


def area_samples(logits: Tensor, labels: Tensor, max_fpr: float) -> dict[str, Sample]:
    """The result of one run, for each metric with intervals, from its logits and labels `[n, m]`."""
    found = metrics.evaluate(logits, labels, max_fpr)
    parts = row_influence(logits, labels, [1.0, max_fpr])
    freedom = row_freedom((labels == 1).sum(0), (labels == 0).sum(0))
    return {
        short: Sample(found[name].unsqueeze(0), part, freedom)
        for (short, name), part in zip(AREAS.items(), parts, strict=True)
    }


def compare_methods(
    runs: Sequence[dict[str, Sample]], member: Sequence[int], labels: Tensor, main: str
) -> dict[str, Any]:
    """Every method, and every pair of methods, from the `area_samples` and the method (0 and up) of each run.

    `"methods"` has, by metric, the mean over tasks with interval and spread over runs. `"pairs"` has, for
    each pair `a` minus `b` and by metric, the difference of the means with interval and p value, adjusted
    over all pairs and metrics (Holm). The `main` metric orders them: the better minus the worse, pairs of
    the best method first. These are also compared task by task, adjusted by Benjamini and Hochberg.
    """
    grouped = [[run for run, k in zip(runs, member, strict=True) if k == g] for g in range(max(member) + 1)]
    methods = [{name: Sample.together([run[name] for run in group]) for name in AREAS} for group in grouped]
    means = [{name: sample.mean(labels) for name, sample in method.items()} for method in methods]
    values = [float(mean[main].estimate().value) for mean in means]
    order = sorted(range(len(methods)), key=lambda one: (math.isnan(values[one]), -values[one]))
    pairs, p_values = [], []
    for a, b in combinations(order, 2):
        entry: dict[str, Any] = {"a": a, "b": b}
        for name in AREAS:
            overall = means[a][name].minus(means[b][name])
            entry[name] = _difference(overall)
            p_values.append(overall.p_value())
            if a == order[0]:
                tasks = methods[a][name].minus(methods[b][name])
                entry[name]["tasks"] = _difference(tasks)
                entry[name]["tasks"]["adjusted"] = rounded(benjamini_hochberg(tasks.p_value()), 6)
        pairs.append(entry)
    adjusted = rounded(holm(torch.stack(p_values)), 6) if p_values else []
    for number, entry in enumerate(pairs):
        for offset, name in enumerate(AREAS):
            entry[name]["adjusted"] = adjusted[len(AREAS) * number + offset]
    return {
        "methods": [{name: _area(mean) for name, mean in method.items()} for method in means],
        "pairs": pairs,
    }


def _area(mean: Sample) -> dict[str, Any]:
    estimate = mean.estimate()
    low, high = estimate.share_interval()
    spread = rounded(mean.values.std()) if len(mean.values) > 1 else None
    return {"value": rounded(estimate.value), "low": rounded(low), "high": rounded(high), "spread": spread}


def _difference(estimate: UncertainValue) -> dict[str, Any]:
    low, high = (end.clamp(-1, 1) for end in estimate.interval())
    p_value = rounded(estimate.p_value(), 6)
    return {"value": rounded(estimate.value), "low": rounded(low), "high": rounded(high), "p": p_value}
