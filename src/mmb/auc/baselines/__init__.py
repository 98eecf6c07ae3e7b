"""What the min-max bilevel objectives are compared with."""

from mmb.auc.baselines.cross_entropy import CrossEntropy
from mmb.auc.baselines.focal import Focal
from mmb.auc.baselines.minibatch_partial import MiniBatchPartialAUC
from mmb.auc.baselines.pauci import PAUCI
from mmb.auc.baselines.sopa import SOPA, SOPAs
from mmb.auc.baselines.staco import STACO

__all__ = ["PAUCI", "SOPA", "STACO", "CrossEntropy", "Focal", "MiniBatchPartialAUC", "SOPAs"]
