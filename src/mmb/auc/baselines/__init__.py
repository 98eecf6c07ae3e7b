"""What the min-max bilevel objectives are compared with."""

from mmb.auc.baselines.cross_entropy import CrossEntropy
from mmb.auc.baselines.focal import Focal
from mmb.auc.baselines.minibatch_partial import MiniBatchPartialAUC
from mmb.auc.baselines.sopa import SOPA, SOPAs

__all__ = ["SOPA", "CrossEntropy", "Focal", "MiniBatchPartialAUC", "SOPAs"]
