"""What the min-max bilevel objectives are compared with."""

from mmb.auc.baselines.cross_entropy import CrossEntropy

__all__ = ["CrossEntropy"]
