"""Random scores, with ties, and random labels, with gaps, of many tasks."""

import math

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
