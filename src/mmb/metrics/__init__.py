"""Exact ranking metrics for many tasks at once, with missing labels.

Scores and labels are `[n]` (one task) or `[n, m]` (rows by tasks), on one device. A label is 1, 0 or
missing (NaN in floating labels, -1 in integer ones); missing entries do not count, and their scores may be
anything, even NaN. Scores are compared exactly, whatever their dtype, and equal scores are ties. All counts
are integers, all arithmetic is in float64.

Every metric is a mean, over the positives `p` of a task, of a function of four counts:

    fp_above(p), fp(p)   negatives scored strictly above p, and at or above p
    tp_above(p), tp(p)   positives scored strictly above p, and at or above p (p itself included)

A task without a positive or without a negative has no ROC curve: its value is NaN in every metric, average
precision included. Use `.nanmean()` for the mean over the tasks that have one.
"""

from mmb.metrics._areas import average_precision, evaluate, roc_auc, two_way_partial_auc
from mmb.metrics._curve import RocCurve, roc_curve

SHORT_NAMES = {"auc": "roc_auc", "pauc": "partial_auc", "ap": "average_precision"}
"""Short names, as in recipes, logs and tables, of what `evaluate` computes."""

__all__ = [
    "SHORT_NAMES",
    "RocCurve",
    "average_precision",
    "evaluate",
    "roc_auc",
    "roc_curve",
    "two_way_partial_auc",
]
