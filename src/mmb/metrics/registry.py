"""The metrics by name: what recipes, logs, tables and reports may ask for, from a single sort."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from mmb._numbers import check_range
from mmb.metrics._areas import average_precision_of, roc_auc_of, two_way_pauc_of
from mmb.metrics._early import bedroc_of, enrichment_factor_of, ndcg_of, precision_at_k_of, recall_at_k_of
from mmb.metrics._probabilities import brier_of, calibration_error_of, log_loss_of
from mmb.metrics._ranking import Entries, Sorted, TaskRanks, rank, sort
from mmb.metrics._rates import fpr_at_tpr_of, tpr_at_fpr_of

MetricName = Literal[
    "auc",
    "pauc",
    "ap",
    "two_way_pauc",
    "pauc_above_tpr",
    "tpr_at_fpr",
    "fpr_at_tpr",
    "precision_at_k",
    "recall_at_k",
    "enrichment_factor",
    "bedroc",
    "ndcg",
    "brier",
    "log_loss",
    "calibration_error",
]
"""Names of metrics in recipes, logs and tables."""


class Scored:
    """Sorted entries, and what metrics derive from them, each computed when first asked for.

    Args:
        entries: What was sorted.
        max_fpr: Limit of the metrics that have one.
    """

    def __init__(self, entries: Sorted, max_fpr: float) -> None:
        self.sorted, self.max_fpr = entries, max_fpr

    @cached_property
    def ranks(self) -> TaskRanks:
        """The counts of each positive."""
        return rank(self.sorted)

    @cached_property
    def entries(self) -> Entries:
        """The entries with their scores, which are taken as logits."""
        return self.sorted.entries(logits=True)


@dataclass(frozen=True)
class Metric:
    """One number for each task.

    Attributes:
        title: What it is called in tables.
        meaning: What it is, in a few words; `{}` stands for the largest false positive rate.
        value: Computes it for all tasks.
        higher_is_better: Whether more of it is better.
    """

    title: str
    meaning: str
    value: Callable[[Scored], Tensor]
    higher_is_better: bool = True

    def title_at(self, max_fpr: float) -> str:
        """The title, with the largest false positive rate if it depends on that."""
        return f"{self.title} {max_fpr:g}" if "{}" in self.meaning else self.title

    def definition(self, max_fpr: float) -> str:
        """Title and meaning."""
        return f"{self.title}: {self.meaning.format(f'{max_fpr:g}')}"

    def gain(self, value: float) -> float:
        """A number that is higher the better the value is: the value, or minus the value."""
        return value if self.higher_is_better else -value


METRICS: dict[MetricName, Metric] = {
    "auc": Metric("AUC", "area under the ROC curve", lambda s: roc_auc_of(s.ranks)),
    "pauc": Metric("pAUC", "FPR <= {}, McClish-standardized", lambda s: roc_auc_of(s.ranks, s.max_fpr)),
    "ap": Metric("AP", "average precision", lambda s: average_precision_of(s.ranks)),
    "two_way_pauc": Metric(
        "two-way pAUC",
        "share under the ROC curve of the rectangle FPR <= {}, TPR >= 0.5",
        lambda s: two_way_pauc_of(s.ranks, s.max_fpr, 0.5),
    ),
    "pauc_above_tpr": Metric(
        "pAUC above TPR 0.8",
        "share under the ROC curve of the rectangle TPR >= 0.8",
        lambda s: two_way_pauc_of(s.ranks, 1.0, 0.8),
    ),
    "tpr_at_fpr": Metric(
        "TPR at FPR", "largest TPR with FPR <= {}", lambda s: tpr_at_fpr_of(s.ranks, s.max_fpr)
    ),
    "fpr_at_tpr": Metric(
        "FPR at TPR 0.8", "smallest FPR with TPR >= 0.8", lambda s: fpr_at_tpr_of(s.ranks, 0.8), False
    ),
    "precision_at_k": Metric(
        "P@100", "share of positives in the first 100 rows", lambda s: precision_at_k_of(s.ranks, 100)
    ),
    "recall_at_k": Metric(
        "R@100", "share of the positives in the first 100 rows", lambda s: recall_at_k_of(s.ranks, 100)
    ),
    "enrichment_factor": Metric(
        "EF 1%", "enrichment factor of the first 1% of rows", lambda s: enrichment_factor_of(s.ranks, 0.01)
    ),
    "bedroc": Metric("BEDROC", "alpha = 20", lambda s: bedroc_of(s.ranks, 20.0)),
    "ndcg": Metric("nDCG", "of all rows", lambda s: ndcg_of(s.ranks, None)),
    "brier": Metric("Brier", "mean squared error of probabilities", lambda s: brier_of(s.entries), False),
    "log_loss": Metric("log loss", "mean cross-entropy, in nats", lambda s: log_loss_of(s.entries), False),
    "calibration_error": Metric(
        "ECE", "expected calibration error, 15 bins", lambda s: calibration_error_of(s.entries, 15), False
    ),
}
"""Every metric by its name, in the order of tables, with the parameters it has there."""

SHORT_NAMES: dict[MetricName, str] = {"auc": "roc_auc", "pauc": "partial_auc", "ap": "average_precision"}
"""Short names, as in recipes, logs and tables, of what `evaluate` always computes."""


def evaluate(
    scores: Tensor, labels: Tensor, max_fpr: float = 0.1, also: Sequence[MetricName] = ()
) -> dict[str, Tensor]:
    """ROC AUC, partial AUC and average precision of each task, and others, from a single sort.

    Args:
        scores: `[n]` or `[n, m]`; higher means more likely positive. Metrics of probabilities take them as
            logits.
        labels: same shape; 1, 0 or missing (NaN, or -1 in integers).
        max_fpr: limit of the partial AUC and of other metrics that have one, in (0, 1].
        also: names of further metrics, from `METRICS`.

    Returns:
        `{"roc_auc": roc_auc(scores, labels), "partial_auc": roc_auc(scores, labels, max_fpr),
        "average_precision": average_precision(scores, labels)}`, and the further metrics by their names.

    Raises:
        TypeError: an argument is not a tensor, or not of a supported dtype.
        ValueError: as for `roc_auc`, or a name is not in `METRICS`.
    """
    check_range("(0, 1]", max_fpr=max_fpr)
    if unknown := [name for name in also if name not in METRICS]:
        raise ValueError(f"also: expected names among {', '.join(METRICS)}, got {unknown[0]!r}")
    scored = Scored(sort(scores, labels), max_fpr)
    found = {full: METRICS[short].value(scored) for short, full in SHORT_NAMES.items()}
    return found | {name: METRICS[name].value(scored) for name in also}
