"""The partial AUC of weighted rows."""

import math

import numpy as np
from torch import Tensor

from mmb._extras import require
from mmb.label_values import MISSING


def weighted_auc(scores: Tensor, labels: Tensor, weights: Tensor, max_fpr: float) -> float:
    """Mean partial AUC of the tasks that have both classes, with weights `[n]`, by scikit-learn; else NaN."""
    score = require("sklearn.metrics", extra="estimators").roc_auc_score
    found = []
    for task in range(labels.shape[1]):
        kept = (labels[:, task] != MISSING) & (weights > 0)
        known = labels[kept, task].numpy()
        if len(np.unique(known)) == 2:
            limit = None if max_fpr == 1 else max_fpr
            own = weights[kept].numpy()
            found.append(score(known, scores[kept, task].numpy(), sample_weight=own, max_fpr=limit))
    return float(np.mean(found)) if found else math.nan
