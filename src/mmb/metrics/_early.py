"""Early recognition: how many positives are among the first rows of a ranking.

Where a tie leaves the order open, every metric here is its expectation over all orders of the tied rows, each
as likely as another. All are sums over positives of a number for each rank, so this is exact: a positive in a
tie gets the mean of the numbers of the tie's ranks.
"""

import torch
from torch import Tensor

from mmb._numbers import check_positive, check_range, check_whole
from mmb.metrics._ranking import TaskRanks, rank, sort


def precision_at_k(scores: Tensor, labels: Tensor, k: int = 100) -> Tensor:
    """Share of positives among the k rows of each task with the highest scores.

    A task with fewer than k labeled rows is judged by all it has. Equal to
    `torchmetrics.retrieval.RetrievalPrecision` with `adaptive_k=True`, if all scores are above zero: that
    leaves out positives with others.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        k: number of rows, at least 1.

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative. With
        ties, the expectation over their orders.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or `k` is not a whole number of at least 1.
    """
    check_whole("k", k, 1)
    return precision_at_k_of(rank(sort(scores, labels)), k)


def recall_at_k(scores: Tensor, labels: Tensor, k: int = 100) -> Tensor:
    """Share of each task's positives that are among its k rows with the highest scores.

    Equal to `torchmetrics.retrieval.RetrievalRecall`, if all scores are above zero: that leaves out positives
    with others.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        k: number of rows, at least 1.

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative. With
        ties, the expectation over their orders.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or `k` is not a whole number of at least 1.
    """
    check_whole("k", k, 1)
    return recall_at_k_of(rank(sort(scores, labels)), k)


def enrichment_factor(scores: Tensor, labels: Tensor, fraction: float = 0.01) -> Tensor:
    """How many times as many positives the first fraction of each task's rows has as rows drawn at random.

    With n labeled rows of a task, P of them positives, it is the precision at `ceil(fraction n)` divided by
    `P / n`: 1 for a random ranking, at most `1 / fraction`. Equal to RDKit's `CalcEnrichment`, except
    that RDKit leaves ties in the order they are given.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        fraction: share of the rows, in (0, 1].

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative. With
        ties, the expectation over their orders.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or `fraction` is outside (0, 1].
    """
    check_range("(0, 1]", fraction=fraction)
    return enrichment_factor_of(rank(sort(scores, labels)), fraction)


def bedroc(scores: Tensor, labels: Tensor, alpha: float = 20.0) -> Tensor:
    """Boltzmann-enhanced discrimination of ROC of each task (Truchon and Bayly, 2007).

    With n labeled rows, the positive at rank i counts `exp(-alpha i / n)`; the sum over the positives is
    scaled so that the best ranking has 1 and the worst 0. With `alpha = 20`, the first 8% of the rows make
    up 80% of the value. Equal to RDKit's `CalcBEDROC`, except that RDKit leaves ties in the
    order they are given.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        alpha: how early recognition has to be, more than 0.

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative. With
        ties, the expectation over their orders.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or `alpha` is not a positive number.
    """
    check_positive(alpha=alpha)
    return bedroc_of(rank(sort(scores, labels)), alpha)


def ndcg(scores: Tensor, labels: Tensor, k: int | None = None) -> Tensor:
    """Normalized discounted cumulative gain of each task, of all rows or of the first k.

    The positive at rank i counts `1 / log2(i + 1)`, and nothing if `i > k`; the sum is divided by that of the
    best ranking. Equal to `sklearn.metrics.ndcg_score`.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        k: number of rows, at least 1; None is all.

    Returns:
        Float64 `[m]`, or a scalar tensor for `[n]`; NaN where a task has no positive or no negative. With
        ties, the expectation over their orders.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or `k` is not a whole number of at least 1.
    """
    if k is not None:
        check_whole("k", k, 1)
    return ndcg_of(rank(sort(scores, labels)), k)


def precision_at_k_of(ranks: TaskRanks, k: int) -> Tensor:
    """`precision_at_k` of ranks."""
    first = ranks.labeled.clamp(max=k)
    return ranks.result(_found(ranks, first) / first)


def recall_at_k_of(ranks: TaskRanks, k: int) -> Tensor:
    """`recall_at_k` of ranks."""
    return ranks.result(_found(ranks, ranks.labeled.clamp(max=k)) / ranks.positives)


def enrichment_factor_of(ranks: TaskRanks, fraction: float) -> Tensor:
    """`enrichment_factor` of ranks."""
    first = (ranks.labeled * fraction).ceil()
    return ranks.result(_found(ranks, first) * ranks.labeled / first / ranks.positives)


def bedroc_of(ranks: TaskRanks, alpha: float) -> Tensor:
    """`bedroc` of ranks."""
    step = -alpha / ranks.labeled
    # All is relative to exp(step), the value of the first rank, which may be too small for a number.
    # Over the ranks above + 1, ..., through of a tie, exp(step i) is a geometric series.

    def value(part: slice) -> Tensor:
        own, above = step[ranks.task[part]], ranks.above[part]
        found = (own * above).exp_()
        width = ranks.through[part] - above
        tied = (width > 1).nonzero().squeeze(1)  # few, if any
        own, width = own[tied], width[tied]
        found[tied] *= (own * width).expm1() / own.expm1() / width
        return found

    # The mean over the first P ranks, and over the last P.
    best = step.mul(ranks.positives).expm1() / step.expm1() / ranks.positives
    worst = best * (step * ranks.negatives).exp()
    return ranks.result((ranks.sum(value) / ranks.positives - worst) / (best - worst))


def ndcg_of(ranks: TaskRanks, k: int | None) -> Tensor:
    """`ndcg` of ranks."""
    most = int(ranks.labeled.max()) if k is None else min(k, int(ranks.labeled.max()))
    place = torch.arange(2, most + 2, device=ranks.task.device, dtype=torch.float64)
    gain = torch.nn.functional.pad(place.log2().reciprocal().cumsum(0), (1, 0))  # of the first ranks together

    def value(part: slice) -> Tensor:
        above, through = ranks.above[part], ranks.through[part]
        found = gain[through.clamp(max=most)].sub_(gain[above.clamp(max=most)])
        return found.div_(through - above)

    return ranks.result(ranks.sum(value) / gain[ranks.positives.long().clamp(max=most)])


def _found(ranks: TaskRanks, first: Tensor) -> Tensor:
    """How many positives are among the `first` `[m]` rows of each task, on average over orders of ties."""
    whole = ranks.leading(lambda at: ranks.through[at] <= first)  # those, and some of the next tie
    above, through, tp_above, tp = ranks.counts(whole)
    cut = (first - above) * (tp - tp_above) / (through - above)
    return whole + cut.clamp(min=0).where(whole < ranks.positives, 0)
