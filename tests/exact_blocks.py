"""The true F of the bilevel AUC objectives, with exact lower solutions and duals.

Written from the paper alone: class means over index lists, thresholds by bisection, the dual in closed form,
no weights, no code of the objectives.
"""

from __future__ import annotations

import math

import torch


def quantile(z, rate, tau1, tau2):
    """The root of the increasing function rate + tau2 v - mean sigmoid((z - v) / tau1), by bisection."""
    low, high = torch.tensor(-100.0, dtype=z.dtype), torch.tensor(100.0, dtype=z.dtype)
    for _ in range(62):
        middle = (low + high) / 2
        below = rate + tau2 * middle - torch.sigmoid((z - middle) / tau1).mean() < 0
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def in_units(objective, logits):
    return logits / getattr(objective, "unit", 1.0)


def exact_blocks(objective, logits, labels, k):
    """F_k with its exact thresholds `[t]` and dual."""
    logits = in_units(objective, logits)
    up, down = logits[labels[:, k] == 1, k], logits[labels[:, k] == 0, k]
    threshold = getattr(objective, "tracked", None)
    kind = getattr(objective, "transform", "logit")
    rates, cuts = [], []
    if threshold is not None:
        z = torch.sigmoid(down) if kind == "sigmoid" else down
        rates = threshold.rates.flatten().tolist()
        cuts = [quantile(z, rate, threshold.tau1, threshold.tau2) for rate in rates]
        phi = [torch.sigmoid((z - cut) / threshold.temperature) for cut in cuts]
        chosen = (phi[0] - phi[1]) / (rates[0] - rates[1]) if len(rates) == 2 else phi[0] / rates[0]
    else:
        chosen = torch.ones_like(down)
    chosen_up, positive = torch.ones_like(up), getattr(objective, "tracked_positive", None)
    if positive is not None:
        z = -(torch.sigmoid(up) if kind == "sigmoid" else up)
        cuts.append(quantile(z, float(positive.rates), positive.tau1, positive.tau2))
        chosen_up = torch.sigmoid((z - cuts[-1]) / positive.temperature) / float(positive.rates)
    center = 0.0
    if kind == "recentered":
        center = math.log(len(up) / len(down))
    if kind in ("sigmoid", "recentered"):
        up, down = torch.sigmoid(up - center), torch.sigmoid(down - center)
    if not hasattr(objective, "dual"):
        short = objective.margin - up[:, None] + down[None, :]
        loss = torch.log1p(short.exp()) if objective.surrogate == "logistic" else short.clamp(min=0) ** 2
        return (loss * chosen).mean(), cuts, None
    a, b = objective.mean_positive[k], objective.mean_negative[k]
    held_a, held_b = objective.held[0][k], objective.held[1][k]  # before any change: here they are held fixed
    mean_up, mean_down = (
        held + (weight * (h - held)).mean()
        for held, weight, h in ((held_a, chosen_up, up), (held_b, chosen, down))
    )
    shortfall = objective.margin + mean_down - mean_up
    dual = shortfall.clamp(min=0) if threshold is None else shortfall
    value = (
        (chosen_up * (up - a) ** 2).mean()
        + (chosen * (down - b) ** 2).mean()
        + 2 * dual * shortfall
        - dual**2
    )
    return value, cuts, dual


@torch.no_grad()
def true_value(objective, data):
    logits = data.model(data.inputs)
    parts = [exact_blocks(objective, logits, data.labels, k)[0] for k in range(data.num_tasks)]
    return float((objective.task_weight * torch.stack(parts)).mean())


@torch.no_grad()
def settle(objective, data):
    """Exact dual, thresholds and Hessians."""
    logits = data.model(data.inputs)
    if hasattr(objective, "mean_negative"):
        objective.held = [
            mean.detach().clone() for mean in (objective.mean_positive, objective.mean_negative)
        ]
    for k in range(data.num_tasks):
        _, cuts, dual = exact_blocks(objective, logits, data.labels, k)
        if dual is not None:
            objective.dual[k] = dual
        if hasattr(objective, "tracked_positive"):
            objective.tracked_positive.value[k, 0] = cuts.pop()
        for t, cut in enumerate(cuts):
            objective.tracked.value[k, t] = cut
    entries = objective.entries(logits, data.labels).averaged()
    of_unit = getattr(objective, "transform", "logit") == "sigmoid"
    z = torch.sigmoid(logits) if of_unit else in_units(objective, logits)
    lower = [("tracked", entries, z), ("tracked_positive", entries.mirrored(), -z)]
    for part, own, cut in (
        (getattr(objective, name), *rest) for name, *rest in lower if hasattr(objective, name)
    ):
        tracking = part.look(own, cut)
        assert float(tracking.slope.abs().max()) < 1e-12  # the bisection solves the objective's own problem
        part.hessian.copy_(tracking.curvature.T)


def differences(function, scores, step=1e-5):
    """The gradient of a function of scores `[n, m]` by central differences."""
    found = torch.zeros_like(scores)
    for place in range(scores.numel()):
        up, down = scores.clone(), scores.clone()
        up.view(-1)[place] += step
        down.view(-1)[place] -= step
        found.view(-1)[place] = (function(up) - function(down)) / (2 * step)
    return found
