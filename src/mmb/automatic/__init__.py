"""Step sizes, estimator and momentum from a few probe batches, kept right while a run goes on."""

from mmb.automatic.adaptive_solver import AdaptiveSolver
from mmb.automatic.choice import auto
from mmb.automatic.probe import Findings

__all__ = ["AdaptiveSolver", "Findings", "auto"]
