"""From scores to log-odds: Platt's calibration of many tasks at once, of one model or a mix of several."""

import torch
from torch import Tensor
from torch.nn import functional

_SLOPE_PRIOR = 0.05  # weight of the prior on the logarithm of the slope, in rows
_SHARES_PRIOR = 1.0  # and of that on the logarithms of the shares of the models


def fit_log_odds(
    scores: Tensor, labels: Tensor, weights: Tensor, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Slopes and offset of each task such that $\text{sigmoid}(\sum_f a_f z_f + b)$ is a probability.

    The likelihood of $a > 0$ and $b$ is maximized with targets $(n_+ + 1) / (n_+ + 2)$ and
    $1 / (n_- + 2)$ in place of 1 and 0, so that it has a maximum however well the classes are separated
    (Platt, 1999); a weak prior keeps the slope finite where a class is absent. Slopes are positive: with one
    model, the order of scores is the order of probabilities. With several,
    $a_f \propto e^{\phi_f} / \text{deviation of } z_f$, and a prior takes all models to be equally good, or
    as good as they were `before`, by an earlier `a`. From logits `z [n, models, m]` this gives
    `a [models, m]` and `b [m]`, in float64.
    """
    z = scores.double()
    spread, mean = torch.std_mean(z, dim=0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    z = (z - mean) / spread
    positive, negative = ((labels == value) * weights.double().unsqueeze(1) for value in (1, 0))
    upper = (positive.sum(0) + 1) / (positive.sum(0) + 2)
    lower = 1 / (negative.sum(0) + 2)
    up = positive * upper + negative * lower  # weight of the target 1, and of the target 0
    down = positive * (1 - upper) + negative * (1 - lower)
    found = torch.zeros(2, z.shape[2], dtype=torch.float64, requires_grad=True)  # log of the sum of a, b
    leaning = torch.zeros(z.shape[1:], dtype=torch.float64, requires_grad=True)  # change of phi
    was = torch.zeros_like(leaning) if before is None else (before * spread).clamp(min=1e-12).log()
    optimizer = torch.optim.LBFGS([found, leaning], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        odds = found[0].exp() * ((was + leaning).softmax(0) * z).sum(1) + found[1]
        loss = (up * functional.softplus(-odds) + down * functional.softplus(odds)).sum()
        loss = loss + _SLOPE_PRIOR * found[0].square().sum() + _SHARES_PRIOR * leaning.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    slope = found[0].detach().exp() * (was + leaning.detach()).softmax(0) / spread
    return slope, found[1].detach() - (slope * mean).sum(0)
