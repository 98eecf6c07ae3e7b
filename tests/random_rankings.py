"""Random scores, with ties, and random labels, with gaps, of many tasks."""

import math

import numpy as np
import torch


def random_scores(kind, n, m, generator):
    scores = torch.randn(n, m, generator=generator, dtype=torch.float64)
    return {
        "random": scores,
        "tied": (2 * scores).round(),
        "few": (scores > 0.5).double(),
        "constant": torch.zeros_like(scores),
        "mixed": torch.where(scores > 0, scores.round(decimals=1), scores),
    }[kind]


def random_labels(n, m, generator, missing=0.0, rate=0.3):
    labels = (torch.rand(n, m, generator=generator) < rate).double()
    labels[torch.rand(n, m, generator=generator) < missing] = math.nan
    return labels


def by_task(metric, scores, labels):
    """A metric (as in scikit-learn) of each task's labeled entries; NaN where a class is absent."""
    values = []
    for s, y in zip(scores.T.numpy(), labels.T.numpy(), strict=True):
        s, y = s[~np.isnan(y)], y[~np.isnan(y)]
        values.append(float(metric(y, s)) if 0 < y.sum() < len(y) else math.nan)
    return torch.tensor(values, dtype=torch.float64)


def ranking_cases():
    """Scores and labels of many kinds: random, tied, constant, with gaps, with few rows."""
    generator = torch.Generator().manual_seed(0)
    for kind in ("random", "tied", "few", "constant", "mixed"):
        for n, m, missing in (
            (1, 9, 0.0),
            (2, 9, 0.0),
            (3, 9, 0.2),
            (5, 9, 0.2),
            (60, 4, 0.0),
            (601, 4, 0.6),
        ):
            rate = 0.5 if n < 10 else 0.3
            yield random_scores(kind, n, m, generator), random_labels(n, m, generator, missing, rate)
