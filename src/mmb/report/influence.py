"""How much each test row moves an AUC or a partial AUC: the basis of intervals and paired tests."""

from collections.abc import Sequence

import torch
from torch import Tensor


def row_influence(scores: Tensor, labels: Tensor, limits: Sequence[float]) -> list[Tensor]:
    r"""Influence of every row on each task's standardized partial AUC, scaled so that variances are sums.

    With $F(z)$ the share of a task's negatives above `z` and $S(z)$ the share of its positives
    above `z` (ties count half), and $S_c$ the true positive rate at `FPR = c`:

    $$
    v_i = (c - F(z_i))_+ \text{ of a positive}, \qquad v_j = \min(S(z_j), S_c) \text{ of a negative}
    $$

    are the structural components of the area left of `c`; for `c = 1` they are those of DeLong, DeLong
    and Clarke-Pearson (1988). Centered by class, divided by $\sqrt{n (n - 1)}$ of their class and by
    McClish's $2 (c - c^2/2)$, they are the result $D$, for which

    $$
    \text{Var}(\text{pAUC}_k) = \sum_i D_{ik}^2, \qquad
    \text{Var}(\text{pAUC}^a_k - \text{pAUC}^b_k) = \sum_i (D^a_{ik} - D^b_{ik})^2
    $$

    and likewise for the mean over tasks, with the mean of $D$ over tasks: the rows are the random sample, so
    models and tasks judged on the same rows are compared by pairs.

    The result is float64 `[n, m]` for each limit `c` in (0, 1] (1 is the whole AUC); zero where a label is
    missing, NaN for tasks that lack a class. A class with a single row shows no spread, so it adds nothing.
    """
    positive, negative = (labels == 1).T.contiguous(), (labels == 0).T.contiguous()  # [m, n]
    scores = scores.T.contiguous()
    missed, beaten_by = _shares_above(scores, (positive, negative))  # S, F
    found = []
    for limit in limits:
        reached = ((beaten_by < limit) & positive).sum(1, keepdim=True) / positive.sum(1, keepdim=True)  # S_c
        parts = (positive, (limit - beaten_by).clamp(min=0)), (negative, missed.minimum(reached))
        total = torch.zeros_like(missed)
        for mask, values in parts:
            count = mask.sum(1, keepdim=True).double()
            mean = values.where(mask, 0.0).sum(1, keepdim=True) / count
            total += (values - mean).where(mask, 0.0) / (count * (count - 1).clamp(min=1)).sqrt()
        found.append((total / (2 * limit - limit**2)).T)
    return found


def _shares_above(scores: Tensor, masks: Sequence[Tensor]) -> list[Tensor]:
    """Share of the entries of each row's mask that are above each score, ties counting half, `[m, n]`."""
    there = torch.stack(list(masks)).any(0)
    ordered, order = scores.where(there, -torch.inf).sort(1, descending=True)
    place = torch.arange(ordered.shape[1], device=scores.device).expand_as(ordered)
    new = torch.ones_like(there)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = place.where(new, 0).cummax(1).values  # of the scores tied with this one
    last = place.where(new.roll(-1, 1), len(place[0])).flip(1).cummin(1).values.flip(1)
    shares = []
    for mask in masks:
        count = torch.nn.functional.pad(mask.gather(1, order).cumsum(1), (1, 0))  # in the first k
        above = (count.gather(1, first) + count.gather(1, last + 1)).double() / (2 * count[:, -1:])
        shares.append(torch.empty_like(above).scatter_(1, order, above))
    return shares
