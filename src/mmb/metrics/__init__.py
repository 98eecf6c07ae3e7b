"""Exact ranking metrics for many tasks at once, with missing labels.

Scores and labels are `[n]` (one task) or `[n, m]` (rows by tasks), on one device. A label is 1, 0 or
missing (NaN in floating labels, -1 in integer ones); missing entries do not count, and their scores may be
anything, even NaN. Scores are compared exactly, whatever their dtype, and equal scores are ties. All counts
are integers, all arithmetic is in float64.

Every metric of a ranking is a sum, over the positives `p` of a task, of a function of four counts:

    fp_above(p), fp(p)   negatives scored strictly above p, and at or above p
    tp_above(p), tp(p)   positives scored strictly above p, and at or above p (p itself included)

Where ties leave something open, areas have the straight line between the corners of the curve, rates at an
operating point call tied rows together, and metrics of the first rows are their expectation over the orders
of tied rows. `brier`, `log_loss` and `calibration_error` judge probabilities instead. `operating_points`
places thresholds whose rate on new rows is promised with a stated confidence.

A task without a positive or without a negative has no ROC curve: its value is NaN in every metric, also in
those that could be computed from one class. Use `.nanmean()` for the mean over the tasks that have one.

`METRICS` has every metric by the name that recipes use (`training.select`), with the parameters it has there;
`evaluate` computes any of them from a single sort.
"""

from mmb._renamed import renamed_names
from mmb.metrics._areas import average_precision, roc_auc, two_way_pauc
from mmb.metrics._curve import RocCurve, roc_curve
from mmb.metrics._early import bedroc, enrichment_factor, ndcg, precision_at_k, recall_at_k
from mmb.metrics._operating_points import OperatingPoints, operating_points
from mmb.metrics._probabilities import brier, calibration_error, log_loss
from mmb.metrics._rates import fpr_at_tpr, tpr_at_fpr
from mmb.metrics.registry import METRICS, SHORT_NAMES, Metric, MetricName, evaluate

__all__ = [
    "METRICS",
    "SHORT_NAMES",
    "Metric",
    "MetricName",
    "OperatingPoints",
    "RocCurve",
    "average_precision",
    "bedroc",
    "brier",
    "calibration_error",
    "enrichment_factor",
    "evaluate",
    "fpr_at_tpr",
    "log_loss",
    "ndcg",
    "operating_points",
    "precision_at_k",
    "recall_at_k",
    "roc_auc",
    "roc_curve",
    "tpr_at_fpr",
    "two_way_pauc",
]

__getattr__ = renamed_names(__name__, {"two_way_partial_auc": "mmb.metrics.two_way_pauc"})
